"""Parts of `aioloader.tools.pack`, which packs images into record files.

- `options`: all options, checked once.
- `sources`: the images and labels of a folder, a list (`lists`), a well-known set or a dataset (`samples`).
- `writer`: reads and encodes the images (`encoding`) with the loader, in any executor, in order; writes the record
  files, their indexes and lists, syncs them regularly and publishes them at the end.
- `append`: the journal, which records the progress, so that a killed run can be resumed, and whose lock lets one
  process pack at a time; and the files that new records are appended to.
- `run`: plans the order of the images and the images of each file, and runs all of this.
- `report`: the result, in Python and in JSON.
"""
