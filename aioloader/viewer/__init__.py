"""Web pages of `aioloader view`, served to a browser or written to files.

A request passes through these modules:

- `app`: runs the server, accepts or refuses it, and routes it to a page or an image
- `site`: computes the results in threads, and caches them; reads the labels of all records in the background
- `aioloader.formats.collection`, and the `view` of a format: read the dataset on demand
- `shard_samples`: the same for formats whose samples have named fields
- `rendering`, `draws`: render its stored image, and its augmented image
- `pages`: HTML

`export` writes the same pages to files. Needs ``pip install 'aioloader[view]'``.
"""

from __future__ import annotations

__all__ = ()
