"""Table of the targets by name: their modules, their coverage, and the inputs of a long run."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from tests.fuzz.target import Target


class Entry(NamedTuple):
    """Line of the table.

    Attributes:
        where: module and class, "module:class".
        long: inputs of a long run.
        covers: files whose branches are counted with ``--coverage``.
        more_memory: limit of address space in bytes that a process may add after its start; 0: no limit.
        needs: package that the target needs and the test suite may lack; "" for none.
    """

    where: str
    long: int
    covers: tuple[str, ...]
    more_memory: int = 0
    needs: str = ""


TARGETS = {
    "records": Entry(
        "tests.fuzz.records:Records",
        10_000_000,
        (
            "recordio/_parser.py",
            "recordio/_framing.py",
            "recordio/_sansio.py",
            "recordio/_recovery.py",
        ),
    ),
    "jpeg": Entry(
        "tests.fuzz.jpegs:Jpegs",
        200_000,
        (
            "aioloader/jpeg/frame.py",
            "aioloader/jpeg/cut.py",
            "aioloader/jpeg/cut.py",
            "aioloader/transforms/lazy_image.py",
            "aioloader/jpeg/turbojpeg.py",
        ),
    ),
    "crops": Entry(
        "tests.fuzz.crops:CropFiles",
        500_000,
        (
            "aioloader/jpeg/crop_scan.py",
            "aioloader/jpeg/crop_entry.py",
            "aioloader/jpeg/crop_window.py",
            "aioloader/jpeg/huffman.py",
        ),
        1 << 33,
        "numba",
    ),
    "entries": Entry(
        "tests.fuzz.entries:Entries",
        400_000,
        (
            "aioloader/jpeg/crop_entry.py",
            "aioloader/jpeg/crop_window.py",
            "aioloader/transforms/lazy_image.py",
        ),
        1 << 33,
    ),
    "parts": Entry(
        "tests.fuzz.parts:Parts",
        400_000,
        (
            "aioloader/jpeg/crop_window.py",
            "aioloader/jpeg/crop_window.py",
            "aioloader/transforms/lazy_image.py",
        ),
        1 << 33,
    ),
    "crop-indexes": Entry(
        "tests.fuzz.crop_indexes:CropIndexes",
        100_000,
        (
            "aioloader/crop_index/layout.py",
            "aioloader/crop_index/reader.py",
            "aioloader/crop_index/writer.py",
        ),
        1 << 33,
    ),
    "sample-indexes": Entry(
        "tests.fuzz.sample_indexes:SampleIndexes",
        200_000,
        ("aioloader/sample_index/store.py", "aioloader/sample_index/store.py"),
        1 << 33,
    ),
    "rows": Entry(
        "tests.fuzz.rows:Rows",
        1_000_000,
        (
            "aioloader/formats/parquet/block.py",
            "aioloader/formats/parquet/block.py",
            "aioloader/formats/parquet/block.py",
            "aioloader/formats/parquet/pages.py",
        ),
    ),
    "parquet": Entry(
        "tests.fuzz.parquet_files:ParquetFiles",
        50_000,
        (
            "aioloader/formats/parquet/footer.py",
            "aioloader/formats/parquet/row_groups.py",
            "aioloader/formats/parquet/arrow_columns.py",
            "aioloader/formats/parquet/table.py",
        ),
        1 << 33,
        "pyarrow",
    ),
    "index": Entry("tests.fuzz.texts:Indexes", 1_000_000, ("recordio/_index_text.py", "recordio/_index.py")),
    "files": Entry(
        "tests.fuzz.files:Files",
        100_000,
        (
            "aioloader/storage/records.py",
            "aioloader/storage/layout.py",
            "aioloader/storage/local/source.py",
            "aioloader/formats/recordio/dataset.py",
        ),
    ),
    "lst": Entry(
        "tests.fuzz.texts:Lists",
        300_000,
        (
            "aioloader/formats/list/dataset.py",
            "aioloader/mxnet/image/_encoded_images.py",
            "aioloader/mxnet/io/image_records.py",
            "aioloader/packing/lists.py",
        ),
    ),
    "header": Entry(
        "tests.fuzz.binaries:Headers",
        500_000,
        ("recordio/_image.py", "aioloader/datasets/decoding.py", "aioloader/transforms/raw.py"),
    ),
    "sets": Entry(
        "tests.fuzz.binaries:Sets",
        100_000,
        ("aioloader/formats/arrays/vision.py",),
    ),
    "arrays": Entry("tests.fuzz.binaries:Arrays", 300_000, ("aioloader/mxnet/ndarray_file.py",)),
    "images": Entry(
        "tests.fuzz.images:Images",
        300_000,
        ("aioloader/transforms/formats.py", "aioloader/transforms/decode.py"),
        1 << 33,
    ),
    "tables": Entry(
        "tests.fuzz.iterators:Tables",
        100_000,
        ("aioloader/mxnet/io/file_iters.py",),
    ),
    "hub-answers": Entry(
        "tests.fuzz.hub_answers:HubAnswers", 1_000_000, ("aioloader/storage/remote/hub_answers.py",)
    ),
    "boxes": Entry("tests.fuzz.iterators:Boxes", 300_000, ("aioloader/mxnet/io/augment.py",)),
    "mds": Entry(
        "tests.fuzz.mds:Mds",
        300_000,
        (
            "aioloader/formats/mds/index.py",
            "aioloader/formats/mds/encodings.py",
            "aioloader/formats/mds/fields.py",
        ),
        1 << 33,
    ),
    "tfrecord": Entry(
        "tests.fuzz.tfrecord:TFRecord",
        300_000,
        (
            "aioloader/formats/tfrecord/example.py",
            "aioloader/formats/tfrecord/example.py",
            "aioloader/formats/tfrecord/example.py",
            "aioloader/formats/tfrecord/framing.py",
            "aioloader/formats/tfrecord/scan.py",
            "aioloader/formats/tfrecord/records.py",
            "aioloader/formats/tfrecord/fields.py",
            "aioloader/formats/tfrecord/fields.py",
        ),
        1 << 33,
    ),
    "tar": Entry(
        "tests.fuzz.tars:Tars",
        300_000,
        (
            "aioloader/formats/tar/header.py",
            "aioloader/formats/tar/members.py",
            "aioloader/formats/tar/samples.py",
            "aioloader/formats/tar/scan.py",
            "aioloader/formats/tar/index.py",
            "aioloader/formats/tar/index.py",
            "aioloader/formats/tar/index.py",
            "aioloader/formats/tar/fields.py",
        ),
        1 << 33,
    ),
    "references": Entry(
        "tests.fuzz.references:References",
        1_000_000,
        (
            "aioloader/service/addresses.py",
            "aioloader/service/allowed.py",
            "aioloader/service/references.py",
            "aioloader/service/root_folder.py",
            "aioloader/service/web_urls.py",
        ),
    ),
    "http-responses": Entry(
        "tests.fuzz.http_responses:Responses",
        100_000,
        ("aioloader/service/http_fetch.py",),
        0,
        "h11",
    ),
    "states": Entry("tests.fuzz.states:States", 100_000, ("aioloader/loader/checkpoint.py",)),
}


def load(where: str) -> Target:
    """Make a target from "module:class" or from its name in the table."""
    module, _, name = (TARGETS[where].where if where in TARGETS else where).partition(":")
    target: Any = getattr(importlib.import_module(module), name)()
    found: Target = target
    return found
