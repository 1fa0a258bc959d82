"""The async core, which moves batches through the stages of the loader. Internal.

One file for each stage, in the order in which a batch passes them: `plan` (for iterables `iterable_plan`), `fetch`,
`dispatch`, (work: in the executor; `async_map` for async transforms), `collate`. `batch_task` calls them for one batch,
with the slabs of the batch (`memory`) and the parts of the loader (`context`). `epoch_runner` runs several batches at a
time under one supervisor task and puts them in order; `inline` makes one batch at a time without tasks.
"""
