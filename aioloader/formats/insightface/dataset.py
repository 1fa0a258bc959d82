"""InsightFace's training sets: ``train.rec``, ``train.idx`` and ``property``.

`layout` describes the records and how images are distinguished from other records.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shards import pinned_path
from aioloader.errors import LayoutError
from aioloader.formats.insightface.layout import (
    PROPERTY,
    FaceHeader,
    Identities,
    ImageLines,
    Property,
    choose_identities,
    choose_images,
    face_header,
    identity_ranges,
    read_property,
    slack,
)
from aioloader.formats.recordio.dataset import ImageRecordDataset, RecordTable, RecordTables
from aioloader.formats.recordio.heads import read_heads
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import advises
from aioloader.storage.urls import beside, is_url, join, path_of, sibling, suffix_of
from recordio import IndexNotFoundError, RecordFileNotFoundError, extract, unpack

if TYPE_CHECKING:
    from typing import Unpack

    from aioloader.datasets.decoding import ImageKeywords
    from aioloader.foundation.types import Array, IntArray, ItemLocation, ReadPlan, Spans

REC = "train.rec"
# Enough of the end of an .idx for its last line.
_TAIL_NBYTES = 256
_MOST_OFFSET = 2**63 - 1


class InsightFaceDataset(ImageRecordDataset):
    """Images of a set in InsightFace's layout: (image, identity), uint8 (height, width, 3) RGB and int64.

    Sample i is the record with the key i + 1. The header (key 0) and the identity records are not samples. In a set
    without a header, such as those of InsightFace's `RecBuilder`, every record is a sample, in the order of the .idx.
    If a record has several labels, the first is the identity.

    The dataset reads the .idx and the header when it is first used, and no other record. If the .idx lacks some of the
    images that the header announces, as after a repair of the file, a warning reports their number, and the other
    images are the samples. Any other contradiction raises `LayoutError` at the first use.

    Args:
        path: the folder with train.rec, train.idx and property; or the .rec file, with an .idx of the same name; or the
            URL of either.
        flag: 1 for colour; 0 for grey, (height, width, 1); -1 for the channels and bits of each file.
        exif, max_pixels, dct_scaling, crop_index, cache, cache_limit, direct: see `ImageRecordDataset`.
        label_dtype: dtype of the labels; None: int64.

    Raises:
        FileNotFoundError: there is no .rec file, or no .idx, without which the keys are unknown.
        ValueError: an option is not allowed.
    """

    _first_label = True

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        path: str | os.PathLike[str],
        flag: int = 1,
        *,
        label: str | None = AUTO,
        direct: bool = False,
        **options: Unpack[ImageKeywords],
    ) -> None:
        rec = pinned_path(path_of(path))
        far = is_url(rec)
        if far and suffix_of(rec) != ".rec":
            rec = join(rec, REC)
        elif os.path.isdir(rec):
            rec = os.path.join(rec, REC)
        if not far and not os.path.exists(rec):
            raise RecordFileNotFoundError(f"there is no record file {rec!r}", path=rec)
        if options.get("label_dtype") is None:
            options["label_dtype"] = "int64"
        super().__init__(rec, flag, label=label, direct=direct, **options)
        self._idx_path = beside(rec, ".idx")
        if not far and not os.path.exists(self._idx_path):
            raise IndexNotFoundError(
                "no such file. The keys in it are needed to find the images. `aioloader index` writes one that numbers "
                "the records in the order of the file, which is correct only if the header is the first record",
                path=self._idx_path,
            )
        self._property_path = sibling(rec, PROPERTY) if far else os.path.join(os.path.dirname(rec), PROPERTY)
        self._images: ImageLines | None = None
        self._identities: Identities | None = None
        self._num_classes: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_images": None, "_identities": None}

    # -- a byte dataset ------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> RecordTables:
        """Return the table of all records of the file, which is read at the first use."""
        if self._records is None:
            with self._asking():
                table = RecordTable(self._path, self._idx_path, version=self._versions[0])
            self._records = RecordTables([table])
        return self._records

    @property
    def lines(self) -> ImageLines:
        """Return the lines of the .idx that are images, which are determined at the first use."""
        if self._images is None:
            self._images = self._find_images()
        return self._images

    def __len__(self) -> int:
        return self._counted(self.lines.count)

    def spans(self, indices: IntArray) -> Spans:
        return self.table.spans(self.lines.at(indices))

    def location(self, index: int) -> ItemLocation:
        return self.table.location(int(self.lines.at(np.array([index], np.int64))[0]))

    # -- selection of the images ---------------------------------------------------------------------------------------

    def find_header(self) -> FaceHeader | None:
        """Read the header (record 0); None if record 0 is an image or does not exist.

        Raises:
            LayoutError: record 0 is neither an image nor a valid header.
        """
        zeros = np.flatnonzero(self._keys() == 0)
        return self._read_header(int(zeros[-1])) if len(zeros) else None

    def _find_images(self) -> ImageLines:
        keys = self._keys()
        header = self.find_header()
        if header is None:
            return ImageLines(None, len(keys))
        off = slack(header.first)
        if off:
            # The number is rounded, so the first record without an image is searched.
            first = self._first_without_body(header.first - off, header.first + off, keys)
            header = FaceHeader(first or header.first, max(header.end, first or header.first))
        images = choose_images(keys, header)
        if header.first > 1 and (not images.count or int(keys.max()) < header.first - 1):
            raise LayoutError(
                f"the header says that images have the keys 1 to {header.first - 1}, but the largest key of "
                f"{self._idx_path} is {int(keys.max())}: the .idx is truncated, or belongs to another file",
                path=self._path,
                key=0,
            )
        if images.first_missing is not None:
            warn_caller(
                f"{self._idx_path} lacks {header.first - 1 - images.count} of the {header.first - 1} images that the "
                f"set's header announces, the first with the key {images.first_missing}; they are left out",
                UserWarning,
            )
        return images

    def _keys(self) -> IntArray:
        keys = self.table.index.keys
        if isinstance(keys, list):
            raise LayoutError(
                "keys must be whole numbers in this layout, but some are text", path=self._idx_path
            )
        return np.asarray(keys)

    def _read_header(self, line: int) -> FaceHeader | None:
        """Read the header on a line of the index; None if the record is an image."""
        plan, data = self._load(np.array([line], np.int64))
        framed = data[int(plan.start[0]) : int(plan.start[0] + plan.length[0])]
        payload = bytes(extract(framed, path=self._path, offset=int(self.table.index.offsets[line])))
        header = face_header(payload)
        if header is None and len(payload) >= 24:
            head, body = unpack(payload)
            if head.flag and not len(body):
                raise LayoutError(
                    "record 0 has no image, so it should be the header of the set, but its labels "
                    f"{head.label[:2].tolist()} are not keys",
                    path=self._path,
                    key=0,
                )
        return header

    def _load(self, lines: IntArray) -> tuple[ReadPlan, memoryview]:
        if self._source is None:
            self._source = self.open_source()
        return self._source.fetch(self.table.spans(lines))

    def _first_without_body(self, low: int, high: int, keys: IntArray) -> int | None:
        """Return the first key in [low, high] whose record has labels only; None without one."""
        lines = np.flatnonzero((keys >= low) & (keys <= high))
        lines = lines[np.argsort(keys[lines], kind="stable")]
        heads = self._read_heads(0, self.table.index.offsets[lines])
        bare = np.flatnonzero(heads.bare)
        return int(keys[lines[bare[0]]]) if len(bare) else None

    # -- description of the set ----------------------------------------------------------------------------------------

    def _property(self) -> Property:
        found = self._property_if_any()
        if found is None:
            raise LayoutError(
                "there is no such file; write one with one line: number of identities, height and width of the "
                "images, such as '85742,112,112'",
                path=self._property_path,
            )
        return found

    def _property_if_any(self) -> Property | None:
        try:
            with self._asking():
                return read_property(self._property_path)
        except FileNotFoundError:
            return None

    @property
    def image_size(self) -> tuple[int, int]:
        """Return (height, width) of the images in pixels, from the file `property`.

        Raises:
            LayoutError: there is no such file, or it is malformed.
        """
        found = self._property()
        return found.height, found.width

    @property
    def num_classes(self) -> int:
        """Return the number of identities from the file `property`, or without it the number of identity records.

        Warns:
            UserWarning: both are known and differ. Models are trained with the number in `property`.

        Raises:
            LayoutError: neither is known; or `property` is malformed.
        """
        if self._num_classes is None:
            header = self.lines.header
            records = 0 if header is None else header.end - header.first
            known = self._property_if_any()
            count = records if known is None and records else self._property().num_classes
            if header is not None and records and abs(count - records) > slack(header.end):
                warn_caller(
                    f"{self._property_path} announces {count} identities, but the header of {self._path} "
                    f"has {records}; num_classes is {count}",
                    UserWarning,
                )
            self._num_classes = count
        return self._num_classes

    @property
    def identities(self) -> Identities:
        """Return the range of image indices of each identity: ``dataset.identities[5]`` is ``range(start, stop)``.

        The ranges come from the identity records; record k is identity k, which is also the label of its images in
        every set written by InsightFace's programs. Without identity records all labels are read.

        Raises:
            LayoutError: an identity record is missing, corrupt, or names images that do not exist; or there are no
                identity records, and the images are not grouped by identity.
        """
        if self._identities is None:
            header = self.lines.header
            recorded = header is not None and header.end > header.first
            self._identities = self._recorded_identities() if recorded else self._labelled_identities()
        return self._identities

    def _recorded_identities(self) -> Identities:
        header = self.lines.header
        assert header is not None
        lines, keys = choose_identities(self._keys(), header, self._path, self._idx_path)
        plan, data = self._load(lines)
        ranges = self._exact(identity_ranges(data, plan.start, plan.length, keys, self._path))
        outside = np.flatnonzero(ranges[:, 1] > header.first)
        if len(outside):
            which = int(outside[0])
            raise LayoutError(
                f"the record with the key {int(keys[which])} assigns the images {int(ranges[which, 0])} to "
                f"{int(ranges[which, 1]) - 1} to identity {which}, but the last image is {header.first - 1}",
                path=self._path,
                key=int(keys[which]),
            )
        places = self.lines.places(ranges.ravel()).reshape(-1, 2)
        return Identities(places[:, 0], places[:, 1])

    def _exact(self, ranges: IntArray) -> IntArray:
        """Return the ranges of keys; ends that may be rounded are corrected by the labels of the images near them."""
        exact = ranges.copy()
        for identity in np.flatnonzero(ranges[:, 1] >= 1 << 24).tolist():
            for side in (0, 1):
                border = int(ranges[identity, side])
                off = slack(border)
                around = np.arange(border - off - side, border + off + 1 - side)
                places = self.lines.places(around)
                there = self.lines.places(around + 1) > places
                if not off:
                    continue
                own = around[there][self._labels_at(places[there]) == identity]
                if len(own):
                    exact[identity, side] = own[-1] + 1 if side else own[0]
        return exact

    def _labelled_identities(self) -> Identities:
        labels = self._all_labels()
        if labels.dtype.kind not in "iu" or (len(labels) and int(labels.min()) < 0):
            raise LayoutError(
                "labels that are not whole numbers from 0 on cannot be identities", path=self._path
            )
        if (labels[1:] < labels[:-1]).any():
            raise LayoutError(
                "the set has no identity records, and its images are not grouped by identity: use labels(), which "
                "returns the identity of each image",
                path=self._path,
            )
        # Identities 0 to the largest label; one without images has an empty range.
        counts = np.bincount(labels.astype(np.int64)) if len(labels) else np.empty(0, np.int64)
        stop = np.cumsum(counts, dtype=np.int64)
        return Identities(stop - counts, stop)

    def labels(self) -> Array:
        """Return the identity of every image, (n,), from the records' headers.

        With identity records only the headers of the first and the last image of identity k are read: if both have the
        label k, so have those between them.

        Raises:
            OSError: the file cannot be read.
            ValueError: a record's header is corrupt, or its label does not fit the dtype; or the dataset was made
                without labels.
        """
        if not self._labelled:
            raise ValueError("this dataset has no labels, because it was made with label=None")
        return self._all_labels()

    def _all_labels(self) -> Array:
        found = np.full(len(self), np.nan)
        asked = np.arange(len(self))
        header = self.lines.header
        if header is not None and header.end > header.first:
            asked = self._fill_labels(found)
        found[asked] = self._labels_at(asked)
        dtype = np.dtype(self._label_dtype)
        if dtype.kind in "iu":
            bounds = np.iinfo(dtype)
            fits = (found == np.floor(found)) & (found >= bounds.min) & (found <= float(bounds.max))
            if not fits.all():
                index = int(np.flatnonzero(~fits)[0])
                raise ValueError(
                    f"{self._path}: the label {found[index]} of the record with the key {self.location(index).key!r} "
                    f"does not fit {dtype}: pass label_dtype='float32' to the dataset"
                )
        labels: Array = found.astype(dtype)
        return labels

    def _fill_labels(self, labels: Array) -> Array:
        """Write the labels known from the identities; return the indices of the images whose headers must be read."""
        try:
            identities = self.identities
        except LayoutError:
            return np.arange(len(labels))
        numbers = np.flatnonzero(identities.stop > identities.start)
        start, stop = identities.start[numbers], identities.stop[numbers]
        first = self._labels_at(start)
        last = self._labels_at(stop - 1)
        for number, low, high, one, other in zip(
            numbers.tolist(), start.tolist(), stop.tolist(), first, last, strict=True
        ):
            labels[low:high] = number if one == other == number else np.nan
        return np.flatnonzero(np.isnan(labels))

    def _labels_at(self, indices: IntArray) -> Array:
        """Read the labels of images, float32 (n,)."""
        offsets = self.table.index.offsets[self.lines.at(indices)]
        heads = self._read_heads(0, offsets, labels=1)
        if not heads.packed.all():
            key = self.location(int(indices[np.flatnonzero(~heads.packed)[0]])).key
            raise ValueError(
                f"{self._path}: the record with the key {key!r} has no label: the file is corrupt"
            )
        return heads.first_label


def insightface_file(path: str | os.PathLike[str]) -> str | None:
    """Return the .rec file of a set in InsightFace's layout; None if `path` is not such a set.

    A folder is such a set if it contains train.rec and a `property` file, or train.rec with a header record. A .rec
    file is one if it has such a header, or is named train.rec and next to a `property` file. Only a few bytes are read,
    and the .idx only if these bytes may be a header.

    Args:
        path: a folder or a file; ``~`` is expanded.
    """
    given = path_of(path)
    rec = os.path.join(given, REC) if os.path.isdir(given) else given
    idx = os.path.splitext(rec)[0] + ".idx"
    if not os.path.isfile(rec) or not os.path.isfile(idx):
        return None
    try:
        if os.path.basename(rec) == REC:
            read_property(os.path.join(os.path.dirname(rec), PROPERTY))
            return rec
    except (OSError, LayoutError):
        pass
    try:
        if not read_heads(rec, np.array(_ends(idx), np.int64)).bare.any():
            return None
        return None if InsightFaceDataset(rec).find_header() is None else rec
    except LayoutError:
        return rec  # a corrupt set
    except (OSError, ValueError, EOFError):
        return None  # the error is raised when the file is read


def _ends(idx: str) -> list[int]:
    """Return the offsets on the first and the last line of an .idx, where the header or an identity record is."""
    with open(idx, "rb", buffering=1 << 13) as file:  # a small buffer, since few bytes are needed
        first = file.readline(_TAIL_NBYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_NBYTES))
        last = file.read(_TAIL_NBYTES).rstrip(b"\n").rpartition(b"\n")[2]
    fields = [line.split(b"\t") for line in (first, last)]
    offsets = [int(field[1]) for field in fields if len(field) == 2 and field[1].strip().isdigit()]
    return [offset for offset in offsets if offset <= _MOST_OFFSET]
