"""How images become record files, part by part; `aioloader.tools.pack` puts the parts together.

- `sources`: which images, with what labels: a folder, a list, a well-known set.
- `plan`: in which order they stand, and which of them go into which file.
- `stream`: the loader that reads and encodes them, in any executor, and gives them in order.
- `journal`, `lock`: where a packing stands, so that it can go on after a kill; one at a time.
- `writer`: the record files, their indexes and lists, made safe from time to time and published at the end.
- `run`: all of this, one image after the other.
- `report`: what was packed, in Python and in JSON.
"""
