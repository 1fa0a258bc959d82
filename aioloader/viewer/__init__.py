"""The page that `aioloader view` serves, and its copy as plain files.

The way of a request:

- `security`: whether it may come in at all
- `app`: which page or picture it asks for
- `site`: makes it, in threads, once
- `collection`, `record_files`, `face_records`, `image_folder`, `opening`: what is looked at, read where it is asked for
- `records`: what a record is (pure)
- `pictures`, `draws`: its picture, and the picture as the trainer sees it
- `labels`: which records have which label, found in the background
- `links`, `pages`: addresses and HTML

`serve` runs it for a browser, `export` writes the same pages as files. Needs ``pip install 'aioloader[view]'``.
"""

from __future__ import annotations

__all__ = ()
