"""Bridges to other frameworks, one module each. No other part of the package imports these modules.

- `aioloader.interop.torch`: a replacement of torch's DataLoader, batches copied to a device ahead of the caller, an
  IterableDataset for torch's DataLoader
- `aioloader.interop.ray`: a source for Ray Data
- `aioloader.interop.opentelemetry`, `aioloader.interop.prometheus`: exports of a loader's metrics

Batches become tensors of torch or arrays of JAX in `aioloader.loader.outputs`.
"""
