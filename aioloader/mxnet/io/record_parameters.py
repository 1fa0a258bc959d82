"""Arguments common to `ImageRecordIter` and `ImageDetRecordIter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.mxnet.io.parameters import Parameter
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("CHANNELS", "FILES", "INTERPOLATION", "LOADING", "MEAN", "OWN", "RESIZE", "idle_channels")

CHANNELS = {"r": "red (or grey)", "g": "green", "b": "blue", "a": "alpha"}

FILES: dict[str, Parameter] = {
    "path_imgrec": Parameter(
        "string",
        about='Record file; several separated by ";", a folder with such files, or a folder and a regular expression. '
        "A list of paths will do too.",
    ),
    "path_imgidx": Parameter(
        "string",
        "",
        optional=True,
        about='Index of the record file; of several files one each, separated by ";". Without it the .idx beside the '
        "file is taken, or the records are found by a scan.",
    ),
    "path_imglist": Parameter(
        "string",
        "",
        optional=True,
        about="A .lst file whose labels replace those of the records, by id. It neither selects nor orders them.",
    ),
}
LOADING: dict[str, Parameter] = {
    "data_shape": Parameter(
        "shape", axes=3, about="(channels, height, width) of an image: 3 RGB, 1 grey, 4 RGBA as stored."
    ),
    "batch_size": Parameter("int", low=1, about="Rows of a batch."),
    "shuffle": Parameter(
        "boolean",
        False,
        about="Every pass has a new order of all records of the part, with an index or without.",
    ),
    "seed": Parameter(
        "int",
        0,
        about="Of the order and of the augmentation. The same seed gives the same batches, whatever the number of "
        "workers.",
    ),
    "num_parts": Parameter(
        "int",
        1,
        low=1,
        about="The records are shared out among so many parts; all have the same number of batches.",
    ),
    "part_index": Parameter("int", 0, low=0, about="Which part this is, from 0."),
    "round_batch": Parameter(
        "boolean",
        True,
        about="Fill the last batch up with the first rows of the next pass, which goes on behind them. False: fill it "
        "up with zeros. `pad` tells how many rows these are.",
    ),
    "preprocess_threads": Parameter(
        "int", 4, low=1, about="Most workers that decode; no more than there are cores."
    ),
    "prefetch_buffer": Parameter("int", 4, low=0, about="Batches on their way at a time, at least 1."),
    "data_name": Parameter("string", "data", about="What the network calls the images."),
    "label_name": Parameter("string", "softmax_label", about="What the network calls the labels."),
    "verbose": Parameter("boolean", True, idle="nothing is printed"),
    "ctx": Parameter(
        "string",
        "gpu",
        choices=("cpu", "gpu"),
        idle="batches are in the memory of this host, and are loaded ahead in any case",
    ),
    "shuffle_chunk_size": Parameter(
        "int", 0, low=0, idle="records are read one by one and not by chunks, and the shuffle is complete"
    ),
    "shuffle_chunk_seed": Parameter("int", 0, idle="there are no chunks; seed decides the order"),
}
RESIZE: dict[str, Parameter] = {
    "resize": Parameter("int", -1, about="First bring the shorter side to so many pixels; -1: do not."),
}
INTERPOLATION: dict[str, Parameter] = {
    "inter_method": Parameter(
        "int",
        1,
        about="How images are resized: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 by the sizes (bicubic to "
        "enlarge, area to shrink, else bilinear), 10 one of 0 to 4 for each image.",
    ),
}
MEAN: dict[str, Parameter] = {
    "mean_img": Parameter(
        "string",
        "",
        optional=True,
        about="File of a mean image, which is taken off every image. If there is no such file it is made: the mean of "
        "one pass without anything random, normalised as images are.",
    ),
    **{
        f"mean_{c}": Parameter(
            "float", 0.0, about=f"Mean of the {name} channel, taken off; not if mean_img is."
        )
        for c, name in CHANNELS.items()
    },
}
# Not part of MXNet.
OWN: dict[str, Parameter] = {
    "strict": Parameter(
        "boolean", False, about="Refuse unknown arguments instead of a warning. Not in MXNet."
    ),
    "exif": Parameter(
        "string",
        "apply",
        choices=("apply", "ignore"),
        about="Turn images upright by their Exif data, or leave them as stored. Not in MXNet.",
    ),
    "max_pixels": Parameter(
        "int",
        DEFAULT_MAX_PIXELS,
        low=1,
        optional=True,
        about="Larger images are refused before they are decoded; None: there is no limit. Not in MXNet.",
    ),
    "on_error": Parameter(
        "string",
        "raise",
        choices=("raise", "skip", "replace"),
        about='A record that cannot be read or decoded is an error that names it. "skip": it is left out, and zeros '
        'fill its batch up, which `pad` counts. "replace": the next sound record of the batch stands in its place. '
        "Both put it into the iterator's `errors`. Not in MXNet.",
    ),
    "max_errors": Parameter(
        "limit",
        None,
        low=0,
        optional=True,
        about="How many records may fail before it is an error all the same; less than 1: which share of a pass, "
        "judged after 1,000 records and at its end; None: any number. Not in MXNet.",
    ),
    "executor": Parameter(
        "string",
        "process",
        choices=("process", "thread", "inline"),
        about='What the workers are; "inline" has none. Not in MXNet.',
    ),
}


def idle_channels(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the means and divisors of channels that the images do not have, and why they have no effect."""
    count = values["data_shape"][0]
    names = list(CHANNELS)[count:]
    return dict.fromkeys(
        [f"{what}_{c}" for c in names for what in ("mean", "std")],
        f"images have {count} channel{'s' if count != 1 else ''}",
    )
