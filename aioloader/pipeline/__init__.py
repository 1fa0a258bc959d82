"""The async core, which moves batches through the stages of the loader. Internal.

One file for each stage, in the order in which a batch passes them: `plan` (for iterables `iterable_plan`), `fetch`,
`dispatch`, (work: in the executor; `async_map` for async transforms), `collate`, `reorder`, `deliver`. `batch_task`
calls them for one batch. `epoch_runner` runs several batches at a time under one supervisor task, `inline` one batch at
a time without tasks.
"""
