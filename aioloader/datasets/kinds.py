"""Kinds of data sets: their names, and how they are recognized by names and first bytes of files. Pure."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from aioloader.formats.tfrecord.framing import HEAD as RECORD_HEAD
from aioloader.formats.tfrecord.framing import length_crc
from aioloader.foundation.git_lfs import LFS_ADVICE, LFS_POINTER, LFS_TEXT
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEAD_NBYTES = 512
"""First bytes of a file that `kind_of_bytes` and `foreign_bytes` need: one block of a tar file."""


@dataclass(frozen=True)
class Kind:
    """Kind of data sets that one class reads.

    Attributes:
        name: such as "TFRecord".
        dataset: name of the class.
        text: description for a list of what can be read.
        suffixes: of the names of its files, in lower case.
    """

    name: str
    dataset: str
    text: str
    suffixes: tuple[str, ...] = ()


RECORDS = Kind("RecordIO", "ImageRecordDataset", "RecordIO files (.rec)", (".rec",))
TAR = Kind("tar", "TarDataset", "tar files in WebDataset's layout (.tar)", (".tar",))
TFRECORD = Kind(
    "TFRecord",
    "TFRecordDataset",
    "TFRecord files (.tfrecord, or names such as train-00000-of-01024)",
    (".tfrecord", ".tfrecords", ".tfrec"),
)
PARQUET = Kind("Parquet", "ParquetDataset", "Parquet files (.parquet)", (".parquet", ".parq", ".pq"))
MDS = Kind("MDS", "MDSDataset", "MDS folders (index.json)")
FOLDER = Kind("image folder", "ImageFolderDataset", "folders with one sub-folder of images for each class")
FACES = Kind("InsightFace", "InsightFaceDataset", "InsightFace's folders (train.rec, train.idx, property)")

KINDS = (RECORDS, TAR, TFRECORD, PARQUET, MDS, FOLDER, FACES)
SHARDS = (RECORDS, TAR, TFRECORD, PARQUET)
"""Kinds whose data sets are lists of files."""

SUPPORTED = "; ".join(kind.text for kind in KINDS)
"""What can be read, for messages."""

MDS_INDEX = "index.json"

_IMAGES = (
    ".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .gif .tif .tiff .pbm .pgm .ppm .pnm .jp2 .j2k .j2c .jpc .jpf "
    ".jpx .avif"
)
IMAGE_SUFFIXES = frozenset(_IMAGES.split())
"""Suffixes of the images that `aioloader.transforms.decode_image` reads."""

_KIND_OF_SUFFIX = {suffix: kind for kind in SHARDS for suffix in kind.suffixes}
_NUMBERED = re.compile(r"(.+)-\d{5,}-of-\d{5,}", re.DOTALL)
_LEAST_TAR_NBYTES = 512
_CHECKSUM = slice(148, 156)
_LARGEST_RECORD = 1 << 40


def kind_of_name(name: str) -> Kind | None:
    """Return the kind of a file by the suffix of its name; None if the name does not show it.

    Args:
        name: or path; ``NAME.tfrecord-00000-of-00004`` is a TFRecord file, too.
    """
    numbered = _NUMBERED.fullmatch(name)
    return _KIND_OF_SUFFIX.get(_suffix(name if numbered is None else numbered[1]))


def is_numbered(name: str) -> bool:
    """Return True for a name such as ``train-00000-of-01024``, which has no suffix and may be that of a shard."""
    return _NUMBERED.fullmatch(name) is not None


def kind_of_bytes(head: bytes) -> Kind | None:
    """Return the kind of a file by its first bytes; None for any other file.

    The sources are docs/format.md for RecordIO, POSIX.1-2017 "pax", section "ustar Interchange Format", for the
    checksum of a tar header, TensorFlow's guide "TFRecord and tf.train.Example" for the masked CRC of a length, and
    parquet-format's README, "File format".

    Args:
        head: the first `HEAD_NBYTES` bytes, or all of a shorter file.
    """
    if head.startswith(MAGIC.to_bytes(4, "little")):
        return RECORDS
    if head.startswith((b"PAR1", b"PARE")):
        return PARQUET
    if _is_tfrecord(head):
        return TFRECORD
    return TAR if _is_tar(head) else None


def _is_tfrecord(head: bytes) -> bool:
    if len(head) < RECORD_HEAD.size:
        return False
    length, masked = RECORD_HEAD.unpack_from(head)
    return bool(length < _LARGEST_RECORD and masked == length_crc(length))


def _is_tar(head: bytes) -> bool:
    if len(head) < _LEAST_TAR_NBYTES:
        return False
    block = head[:_LEAST_TAR_NBYTES]
    try:
        stored = int(block[_CHECKSUM].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return stored == sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")


# -- files of other formats --------------------------------------------------------------------------------------------


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
_MDS_SHARD = Foreign("one shard of an MDS set", f"open its folder, which contains {MDS_INDEX}")
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
        (".mds", _MDS_SHARD),
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
    return _DATASET_DICT if name == "dataset_dict.json" else _OF_SUFFIX.get(_suffix(name))


def is_image_name(name: str) -> bool | None:
    """Return whether a file is an image by the suffix of its name; None if it has none, or one that is unknown."""
    suffix = _suffix(name)
    if suffix in IMAGE_SUFFIXES:
        return True
    return False if suffix in _NO_IMAGES or suffix in _OF_SUFFIX or suffix in _KIND_OF_SUFFIX else None


def foreign_bytes(head: bytes) -> Foreign | None:
    """Return the format that a file has by its first bytes, if it is one that is not read.

    Args:
        head: as for `kind_of_bytes`.
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


def is_mds_index(head: bytes) -> bool:
    """Return True if a file named index.json begins like that of an MDS set."""
    return b'"shards"' in head


def foreign_index(head: bytes) -> Foreign | None:
    """Return the format whose index.json begins with these bytes, if it is one that is not read."""
    return _LITDATA if b'"chunks"' in head else None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


# -- splits ------------------------------------------------------------------------------------------------------------

_SPLITS = frozenset(
    (
        "train",
        "training",
        "trainval",
        "test",
        "testing",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "evaluation",
    )
)
_NOT_LETTERS = re.compile(r"[^a-z]+")


def split_of(name: str) -> str:
    """Return the word for a split ("train", "test", ...) in the name of a file or folder; "" without one."""
    return next((word for word in _NOT_LETTERS.split(name.lower()) if word in _SPLITS), "")


def by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of files by their split, sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(split_of(name), []).append(name)
    return found


def of_several_splits(names: Iterable[str]) -> bool:
    """Return True if the names of folders contain at least two different words for splits."""
    return len(set(map(split_of, names)) - {""}) > 1


def pattern_for(names: Sequence[str], others: Iterable[str]) -> str:
    """Return a pattern that matches these names and none of the others; the first name if there is none.

    Args:
        names: at least one.
        others: names in the same folder, these or others.
    """
    if len(names) == 1:
        return names[0]
    begin = glob.escape(_common_begin(names).rstrip("0123456789"))
    end = _common_begin([name[::-1] for name in names])[::-1].lstrip("0123456789")
    rest = set(others) - set(names)
    for pattern in (f"{begin}*{os.path.splitext(names[0])[1]}", f"{begin}*{glob.escape(end)}"):
        fits = all(fnmatchcase(name, pattern) for name in names)
        if fits and not any(fnmatchcase(name, pattern) for name in rest):
            return pattern
    return names[0]


def _common_begin(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[:same]
