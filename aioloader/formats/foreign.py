"""Files of formats that are not read, and what helps; and the suffixes of images. Pure."""

from __future__ import annotations

import os
from typing import NamedTuple

from aioloader.formats.base import folder_of_part, format_of_name
from aioloader.transforms.formats import LFS_ADVICE, LFS_POINTER, LFS_TEXT

_IMAGES = (
    ".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .gif .tif .tiff .pbm .pgm .ppm .pnm .jp2 .j2k .j2c .jpc .jpf "
    ".jpx .avif"
)
IMAGE_SUFFIXES = frozenset(_IMAGES.split())
"""Suffixes of the images that `aioloader.transforms.decode_image` reads."""


class Foreign(NamedTuple):
    """File of a format that is not read.

    Attributes:
        what: description, such as "a ZIP archive".
        advice: what helps.
    """

    what: str
    advice: str


_ZIP = Foreign("a ZIP archive", "extract it and open the folder")
_ARCHIVE = Foreign("an archive", _ZIP.advice)
_COMPRESSED = Foreign(
    "compressed as a whole, so that no sample can be read without all samples before it",
    "decompress it first (`gunzip`, `zstd -d`, ...): images in it are compressed already",
)
_HDF5 = Foreign(
    "an HDF5 file",
    "pass an object with __len__ and __getitem__ that reads it with h5py to a loader, or arrays to "
    "aioloader.ArrayDataset",
)
_LMDB = Foreign(
    "an LMDB database",
    "pass an object with __len__ and __getitem__ that reads it with lmdb to a loader, or write its images to tar or "
    "RecordIO files once",
)
_ARROW = Foreign(
    "an Arrow file", "write it as Parquet: datasets.load_from_disk(FOLDER).to_parquet(FILE), or with pyarrow"
)
_NUMPY = Foreign("a NumPy file", 'pass numpy.load(FILE, mmap_mode="r") to aioloader.ArrayDataset')
_TABLE = Foreign(
    "a table",
    'aioloader.ImageListDataset(FOLDER, "labels.csv") reads the images that a table names; of others, pass the columns',
)
_LIST = Foreign(
    "a list of images", "aioloader.ImageListDataset(FOLDER, LIST) reads its images, in a loader that you make"
)
_OBJECTS = Foreign(
    "a file of Python objects",
    "load it, and pass an object with __len__ and __getitem__ to a loader, or arrays to aioloader.ArrayDataset",
)
_FFCV = Foreign("an FFCV file", "only ffcv reads it: make a set of another format of the original images")
_VIDEO = Foreign("a video", "extract its frames as images")
_IMAGE = Foreign(
    "a single image",
    "open its folder, which needs a sub-folder of images for each class, or label=None; aioloader.ImageListDataset "
    "reads images of a list",
)
_IDX = Foreign("an index", "pass the .rec file that it belongs to")
_SIDE_CAR = Foreign(
    "an index", "pass the file that it belongs to, whose name is the same without this suffix"
)
_DATABASE = Foreign("a database", "pass an object with __len__ and __getitem__ that reads it to a loader")
_LITDATA = Foreign(
    "a set of LitData's", "only litdata reads it: make a set of another format of the original images"
)
_LFS = Foreign(LFS_TEXT, LFS_ADVICE)
_DATASET_DICT = Foreign(
    "a set of several splits that `datasets` saved",
    "write each split as Parquet: datasets.load_from_disk(FOLDER)[SPLIT].to_parquet(FILE)",
)
_EMPTY = Foreign("empty", "check how it was made or copied")

_OF_SUFFIX = {
    suffix: foreign
    for suffixes, foreign in (
        (".zip", _ZIP),
        (".7z .rar", _ARCHIVE),
        (".gz .tgz .bz2 .tbz .tbz2 .xz .txz .zst .tzst .lz4", _COMPRESSED),
        (".h5 .hdf5 .hdf .he5", _HDF5),
        (".lmdb .mdb", _LMDB),
        (".arrow .feather .ipc", _ARROW),
        (".npy .npz", _NUMPY),
        (".csv .tsv .json .jsonl .xlsx", _TABLE),
        (".lst", _LIST),
        (".pt .pth .pkl .pickle .safetensors .mat", _OBJECTS),
        (".beton", _FFCV),
        (".mp4 .avi .mkv .mov .webm", _VIDEO),
        (".idx", _IDX),
        (".crops .samples", _SIDE_CAR),
        (".db .sqlite .sqlite3", _DATABASE),
    )
    for suffix in suffixes.split()
} | dict.fromkeys(IMAGE_SUFFIXES, _IMAGE)
# Of files that often lie next to images, so that these are not opened to see whether they are images. Photographs in
# cameras' own formats begin like TIFF files.
_OTHERS = (
    ".ann .arw .bin .cfg .cls .cr2 .crw .css .dat .dcm .dng .doc .docx .eps .exr .hdr .heic .heif .htm .html .ico "
    ".info .ini .ipynb .js .jxl .log .m .md .mp3 .nef .orf .part .pdf .psd .py .raf .rst .rw2 .sh .srt .svg .tga .toml "
    ".tmp .txt .url .wav .xls .xml .xmp .yaml .yml"
)
_NO_IMAGES = frozenset(_OTHERS.split())
_OF_BYTES = (
    (LFS_POINTER, _LFS),
    (b"PK\x03\x04", _ZIP),
    (b"PK\x05\x06", _ZIP),
    (b"7z\xbc\xaf\x27\x1c", _ARCHIVE),
    (b"Rar!", _ARCHIVE),
    (b"\x1f\x8b", _COMPRESSED),
    (b"BZh", _COMPRESSED),
    (b"\xfd7zXZ\0", _COMPRESSED),
    (b"\x28\xb5\x2f\xfd", _COMPRESSED),
    (b"\x89HDF\r\n\x1a\n", _HDF5),
    (b"ARROW1", _ARROW),
    (b"\xff\xff\xff\xff\x10", _ARROW),
    (b"\x93NUMPY", _NUMPY),
    (b"SQLite format 3\0", _DATABASE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"\x89PNG\r\n", _IMAGE),
)
_LMDB_MAGIC = (16, 0xBEEFC0DE)  # offset in the first page, see lmdb's MDB_meta


def foreign_name(name: str) -> Foreign | None:
    """Return the format that a file has by its name, if it is one that is not read."""
    whole = folder_of_part(name)
    if whole is not None:
        return Foreign(f"one shard of an {whole.name} set", f"open its folder, which contains {whole.index}")
    return _DATASET_DICT if name == "dataset_dict.json" else _OF_SUFFIX.get(_suffix(name))


def is_image_name(name: str) -> bool | None:
    """Return whether a file is an image by the suffix of its name; None if it has none, or one that is unknown."""
    suffix = _suffix(name)
    if suffix in IMAGE_SUFFIXES:
        return True
    known = suffix in _NO_IMAGES or suffix in _OF_SUFFIX
    return False if known or format_of_name(name) is not None or folder_of_part(name) is not None else None


def foreign_bytes(head: bytes) -> Foreign | None:
    """Return the format that a file has by its first bytes, if it is one that is not read.

    Args:
        head: as for `format_of_head`.
    """
    if not head:
        return _EMPTY
    for magic, foreign in _OF_BYTES:
        if head.startswith(magic):
            return foreign
    at, magic_number = _LMDB_MAGIC
    if head[at : at + 4] == magic_number.to_bytes(4, "little"):
        return _LMDB
    return None


INDEXES = ("index.json",)
"""Names of the files by which folders of such formats are recognized."""


def foreign_index(name: str, head: bytes) -> Foreign | None:
    """Return the format whose index has a name and begins with these bytes, if it is one that is not read."""
    return _LITDATA if name in INDEXES and b'"chunks"' in head else None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()
