"""Bridges to other frameworks, one module each. Only these modules import the frameworks.

- `aioloader.interop.torch`: a replacement of torch's DataLoader, batches copied to a device ahead of the caller, an
  IterableDataset for torch's DataLoader
- `aioloader.interop.ray`: a source for Ray Data
"""
