"""Bridges to other frameworks, one module each. A module imports its framework; nothing else does.

- `aioloader.interop.torch`: an IterableDataset for torch's DataLoader, and a loader of tensors with a state
- `aioloader.interop.ray`: a source for Ray Data
"""
