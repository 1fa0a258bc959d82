"""The async core: plan -> fetch -> dispatch -> reorder -> deliver, written once. Private by name.

Stations, in the order in which a batch meets them: `plan`, `permits`, `fetch`, `dispatch`, `collate`, `reorder`,
`pipeline` (several batches at a time, one supervisor task) or `direct` (one batch at a time, no task).
"""
