"""The async core, which moves batches through the stages of the loader. Internal.

One file for each stage, in the order in which a batch passes them: `plan` (for iterables `iterable_plan`), `fetch`,
`dispatch`, (work: in the executor; `async_map` for async transforms), `collate`, `reorder`, `deliver`.
`epoch_runner` calls them for each batch and runs several batches at a time under one supervisor task; `inline` makes
one batch at a time without tasks.
"""
