"""Parts of `aioloader.tools.pack`, which packs images into record files.

- `sources`: the images and labels of a folder, a list or a well-known set.
- `plan`: the order of the images, and the images of each file.
- `stream`: reads and encodes the images with the loader, in any executor, and yields them in order.
- `journal`: records the progress, so that a killed run can be resumed; its lock lets one process pack at a time.
- `writer`: writes the record files, their indexes and lists, syncs them regularly and publishes them at the end.
- `run`: runs all of this.
- `report`: the result, in Python and in JSON.
"""
