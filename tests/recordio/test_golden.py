"""Tests that files written by MXNet 1.9.1 are read exactly, and written again byte for byte."""

import hashlib

import numpy as np
import pytest

import recordio
from recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, RecordReader, RecordWriter
from tests.cases import with_cases

RECORD_FILES = ["plain.rec", "headers.rec", "images.rec", "folder.rec", "multilabel.rec", "aug.rec"]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def test_the_copies_are_the_files_of_the_manifest(golden, manifest):
    for name, facts in manifest.items():
        if "sha256" in facts:
            assert digest((golden / name).read_bytes()) == facts["sha256"], name


@with_cases("name", RECORD_FILES)
def test_every_record_has_its_offset_key_length_and_hash(golden, manifest, name):
    records = manifest[name]["records"]
    with RecordReader(golden / name) as reader:
        assert reader.offsets.tolist() == [facts["offset"] for facts in records]
        assert list(reader.keys) == [facts.get("key", facts.get("i")) for facts in records]
        payloads = list(reader)
    assert [len(payload) for payload in payloads] == [facts["len"] for facts in records]
    assert [digest(payload) for payload in payloads] == [facts["sha256"] for facts in records]
    assert recordio.verify(golden / name).ok
    assert recordio.Index.scan(golden / name).offsets.tolist() == [facts["offset"] for facts in records]

    with MXRecordIO(golden / name, "r") as reader:
        assert [digest(record) for record in reader] == [facts["sha256"] for facts in records]
    if "key" in records[0]:
        with MXIndexedRecordIO((golden / name).with_suffix(".idx"), golden / name, "r") as indexed:
            assert indexed.keys == [facts["key"] for facts in records]
            for facts in records:
                assert digest(indexed.read_idx(facts["key"])) == facts["sha256"]


@with_cases("name", [name for name in RECORD_FILES if name != "plain.rec"])
def test_every_image_header_and_body(golden, manifest, name):
    for payload, facts in zip(RecordReader(golden / name), manifest[name]["records"], strict=True):
        header, body = recordio.unpack(payload)
        label = np.array(facts["label"], np.float32)
        assert np.array_equal(np.asarray(header.label, np.float32), label)
        assert isinstance(header.label, np.ndarray) == isinstance(facts["label"], list)
        assert header.id == facts.get("id", 0 if name == "aug.rec" else facts["key"])
        assert header.id2 == facts.get("id2", 0)
        if "flag" in facts:
            assert header.flag == facts["flag"]
        if "body_utf8" in facts:
            assert body.decode() == facts["body_utf8"]
        if "encoded_sha256" in facts:
            assert digest(body) == facts["encoded_sha256"]


@with_cases("name", RECORD_FILES)
def test_what_we_write_is_what_mxnet_wrote(golden, tmp_path, name):
    with RecordReader(golden / name) as reader, RecordWriter(tmp_path / name, index=True) as writer:
        for key, payload in zip(reader.keys, reader, strict=True):
            writer.write(payload, key=key)
    assert (tmp_path / name).read_bytes() == (golden / name).read_bytes()
    index = (golden / name).with_suffix(".idx")
    if index.exists():
        assert (tmp_path / index.name).read_bytes() == index.read_bytes()


def test_plain_rec_is_made_again_from_its_description(golden, manifest, tmp_path):
    made = {"all_byte_values": bytes(range(256)), "prng4099": np.random.RandomState(7).bytes(4099)}
    with MXRecordIO(tmp_path / "plain.rec", "w") as writer:
        for facts in manifest["plain.rec"]["records"]:
            payload = made.get(facts["name"])
            writer.write(bytes.fromhex(facts["hex"]) if payload is None else payload)
    assert (tmp_path / "plain.rec").read_bytes() == (golden / "plain.rec").read_bytes()


def test_headers_rec_is_made_again_from_its_description(golden, manifest, tmp_path):
    with MXIndexedRecordIO(tmp_path / "headers.idx", tmp_path / "headers.rec", "w") as writer:
        for facts in manifest["headers.rec"]["records"]:
            header = IRHeader(77, facts["label"], facts["id"], facts["id2"])
            payload = recordio.pack(header, facts["body_utf8"].encode())
            assert payload.startswith(bytes.fromhex(facts["header_bytes_hex"]))
            writer.write_idx(facts["key"], payload)
    for name in ("headers.rec", "headers.idx"):
        assert (tmp_path / name).read_bytes() == (golden / name).read_bytes()


@with_cases("iscolor", [-1, 0, 1])
def test_images_decode_to_the_same_pixels(golden, manifest, iscolor):
    for payload, facts in zip(
        RecordReader(golden / "images.rec"), manifest["images.rec"]["records"], strict=True
    ):
        header, image = recordio.unpack_img(payload, iscolor)
        expected = facts[f"unpack_img_iscolor_{iscolor}"]
        assert image is not None
        assert image.dtype == np.uint8
        assert list(image.shape) == expected["shape"]
        assert header.id == facts["key"]
        if facts["lossless"]:
            # The grey of a colour image is computed, and rounds differently between builds of OpenCV.
            exact = iscolor != 0 or len(facts["source_shape_hwc"]) == 2
            assert not exact or digest(image.tobytes()) == expected["sha256"]
        elif iscolor == 1:
            mean = image[..., ::-1].reshape(-1, 3).mean(0)
            assert mean == pytest.approx(facts["mx.image.imdecode_rgb"]["mean_per_channel"], abs=3)
        if iscolor == 0:
            assert image.mean() == pytest.approx(facts["mx.image.imdecode_gray"]["mean"], abs=3)
