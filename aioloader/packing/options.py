"""Options of `aioloader pack`, which its command line and the function `pack` take."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from aioloader.crop_index.writer import warn_if_slow
from aioloader.datasets.fields import field_names
from aioloader.loader.options import check_max_errors
from aioloader.packing.encoding import Encoding
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.abc import Executor

FOLDER = "folder"
"""Value of `PackOptions.kind` for the images of a folder."""

SYNC_S = 5.0
"""Seconds between two syncs of the written files to disk."""

_POLICIES = ("raise", "skip", "replace")


@dataclass(frozen=True)
class PackOptions:
    """Options of `aioloader.tools.pack.pack`, which describes the errors.

    Attributes:
        kind: "mnist", "fashion-mnist", "cifar10" or "cifar100": both parts of that set, OUT_train and OUT_test.
            "folder": the images of a folder that contains shards of another format, too.
        root: the folder that the paths of a list are relative to; None: the folder of the list.
        synsets: of a folder of images, the names of the classes in the order of their numbers, such as those of the
            training set; None: all folders.
        image, label: names of the fields of the image and its label, for formats whose samples have fields; None: the
            default of the format's class.
        no_label: give every image the label 0, for samples without a label.
        fields: names of other fields that are kept, in OUT.fields.jsonl.
        shuffle: shuffle the records of each part; otherwise they are in the order of the source.
        seed: seed of the shuffled order and of the split, 0 <= seed < 2**64.
        train_ratio, test_ratio: shares of the images for OUT_train and OUT_test, drawn at random; the rest goes to
            OUT_val. If only `train_ratio` is given, the rest goes to OUT_val; if only `test_ratio`, to OUT_train.
        shards: number of files that each part is divided into, OUT-00000-of-00004 and so on.
        append: keep the records of OUT, and write the new ones behind them. Their keys go on from the largest one,
            the list is continued, and classes have the labels of the names in the old report; new classes have the
            labels behind. The old file is copied, not decoded, and replaced when the new one is complete.
        encoding: "keep": files unchanged except by other options; "raw": upright RGB pixels that need no decoder
            (`encode_raw`); "jpg", "png", "webp": re-encode every image. None: "keep", and "png" for sets.
        pass_through: store the files' bytes unchecked; cannot be combined with options that change images.
        resize: scale down images whose shorter side is longer than this, in pixels; with "keep" they become JPEGs.
        center_crop: crop to the middle square first; with "keep" images that are not square become JPEGs.
        color: 1: re-encoded images become RGB; 0: every image becomes grey; -1: re-encoded images keep their channels.
            None: 1, and -1 for sets.
        quality: of re-encoded images: JPEG and WebP 1 to 100, PNG 0 to 9. None: 95, and 3 for PNG.
        optimize: compute optimal Huffman tables for re-encoded JPEGs: a few percent smaller, and slower.
        crops: write a crop index next to each record file, OUT.crops, with which loaders decode a crop without the rest
            of the image. Without the compiled part this takes a hundred times as long, and a CropIndexWarning says so.
        num_workers: number of encoding workers; None: one per core.
        executor: "thread", "process", "fork", "inline" or an executor; see `aioloader.DataLoader`. None: threads; if
            files are only copied, without `crops`, and `num_workers` is None, inline, which is faster unless the disk
            is slow.
        on_error: "raise"; or "skip": leave out and report images that cannot be read or are damaged. Damage is
            detected only if the image is decoded. "replace": write the next valid image of the part once
            more, with its own label, so that there are as many records as images; at the end of a part its first image
            is used.
        max_errors: with "skip" and "replace", largest number of failed images; less than 1: largest share of them,
            checked after 1,000 images and at the end; None: no limit.
        max_pixels: images whose header declares more pixels count as damaged; None for no limit. The datasets have the
            same limit, so that packed images can be read.
        json: path of the report, in the folder of `out`; None: OUT.json.
        resume: resume an interrupted run with the same arguments; False: start over.
        sync_s: seconds between two syncs of the written files to disk; a killed process loses at most this much work.
        begin: called once with the number of images packed before, the number of all images, and the reason why an
            earlier run cannot be resumed, or "".
        tick: called after each image with the number of images packed so far.

    Raises:
        ValueError: an option is not allowed, or conflicts with another one.
    """

    _: KW_ONLY
    kind: str | None = None
    root: str | os.PathLike[str] | None = None
    synsets: Sequence[str] | None = None
    image: str | None = None
    label: str | None = None
    no_label: bool = False
    fields: str | Sequence[str] = ()
    shuffle: bool = False
    seed: int = 0
    train_ratio: float | None = None
    test_ratio: float | None = None
    shards: int | None = None
    append: bool = False
    encoding: str | None = None
    pass_through: bool = False
    resize: int | None = None
    center_crop: bool = False
    color: int | None = None
    quality: int | None = None
    optimize: bool = False
    crops: bool = False
    num_workers: int | None = None
    executor: str | Executor | None = None
    on_error: str = "raise"
    max_errors: float | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    json: str | os.PathLike[str] | None = None
    resume: bool = True
    sync_s: float = SYNC_S
    begin: Callable[[int, int, str], object] | None = None
    tick: Callable[[int], object] | None = None

    def __post_init__(self) -> None:
        encode = self.encode
        if self.crops:
            warn_if_slow()
        if self.in_memory and encode.name == "keep":
            raise ValueError(
                f"the images of {self.kind} are not separate files that could be kept: choose another encoding, such "
                "as png"
            )
        if self.on_error not in _POLICIES:
            raise ValueError(f"on_error must be 'raise', 'skip' or 'replace', got {self.on_error!r}")
        check_max_errors(self.max_errors)
        if self.num_workers is not None and self.num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, or None, got {self.num_workers!r}")
        if not self.sync_s >= 0:
            raise ValueError(f"sync_s must be at least 0 seconds, got {self.sync_s!r}")
        _ = self.kept

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the names of the other fields that are kept."""
        return field_names(self.fields) if self.fields else ()

    @property
    def in_memory(self) -> bool:
        """Return whether the source is a well-known set, whose images are not files."""
        return self.kind is not None and self.kind != FOLDER

    @property
    def encode(self) -> Encoding:
        """Return the function that encodes each image."""
        return Encoding(
            self.encoding or ("png" if self.in_memory else "keep"),
            resize=self.resize,
            quality=self.quality,
            max_pixels=self.max_pixels,
            center_crop=self.center_crop,
            color=(-1 if self.in_memory else 1) if self.color is None else self.color,
            optimize=self.optimize,
            pass_through=self.pass_through,
            crops=self.crops,
        )

    @property
    def order(self) -> dict[str, Any]:
        """Return the options that determine the order and the files, as JSON values."""
        return {
            "shuffle": self.shuffle,
            "seed": self.seed,
            "shards": self.shards,
            "train_ratio": self.train_ratio,
            "test_ratio": self.test_ratio,
        }

    @property
    def dataset(self) -> dict[str, Any]:
        """Return the options for the dataset of a source whose samples have fields."""
        names = {"image": self.image, "label": self.label}
        return {name: value for name, value in names.items() if value is not None}

    def refuse_fields(self, what: str) -> None:
        """Raise if an option about fields was given for a source whose images have none.

        Raises:
            TypeError: one was.
        """
        if self.dataset or self.kept or self.no_label:
            raise TypeError(
                f"image, label, no_label and fields are for samples with fields, and the source is {what}"
            )

    def check_append(self, kind: str, *, divided: bool) -> None:
        """Raise if an option makes another file than one that `append` can continue.

        Args:
            kind: of the source.
            divided: it has several parts.

        Raises:
            ValueError: one does.
        """
        ratios = [name for name in ("train_ratio", "test_ratio") if self.order[name] is not None]
        if ratios or self.shards is not None or divided:
            several = "shards" if self.shards is not None else f"{kind} with its two parts"
            what = ratios[0] if ratios else several
            raise ValueError(
                f"append continues one record file, and {what} makes several: leave one of them out"
            )
        if self.crops:
            raise ValueError(
                "append cannot continue a crop index: leave out crops, and make it again with `aioloader index "
                "--crops` afterwards"
            )
