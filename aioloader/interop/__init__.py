"""Bridges to other frameworks, one module each. A module imports its framework; nothing else does.

- `aioloader.interop.torch`: torch's DataLoader by its arguments, batches copied to a device ahead of the caller, an
  IterableDataset for torch's own DataLoader
- `aioloader.interop.ray`: a source for Ray Data
"""
