"""Tests of the record iterators' arguments: names, types, no effect, help, and calls of well-known scripts."""

import json
import pickle
import warnings
from pathlib import Path

import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.io import MissingParameterError, UnknownParameterWarning, UnusedParameterWarning
from aioloader.mxnet.io.parameters import (
    DETECTION_PARAMETERS,
    IMAGE_PARAMETERS,
    INT8_PARAMETERS,
    UINT8_PARAMETERS,
)
from tests.aioloader.mxnet.image_records import golden_images, make, make_det, write
from tests.cases import with_cases


@with_cases(
    ("unknown", "meant"),
    [
        ("and_mirror", "rand_mirror"),
        ("max_randown_scale", "max_random_scale"),
        ("max_random_h", "random_h"),
        ("max_random_rotate_angle", "max_rotate_angle"),
    ],
)
def test_unknown_arguments_are_reported_with_the_closest_name(ten, unknown, meant):
    with pytest.warns(UnknownParameterWarning, match=rf"{unknown} \(did you mean {meant}\?\)") as caught:
        make(ten, **{unknown: 1})
    assert len(caught) == 1
    assert caught[0].filename.endswith("image_records.py")
    with pytest.raises(TypeError, match=rf"{unknown} \(did you mean {meant}\?\)"):
        make(ten, **{unknown: 1}, strict=True)
    with pytest.warns(UnknownParameterWarning, match=r"rand_miror .*\), max_random_h .*\) \(ignored"):
        make(ten, rand_miror=1, max_random_h=1)


@with_cases(
    ("arguments", "why"),
    [
        ({"verbose": False}, "verbose has no effect: nothing is printed"),
        ({"device_id": 0}, "device_id has no effect: no memory is pinned"),
        ({"ctx": "cpu"}, "ctx has no effect"),
        ({"shuffle_chunk_size": 4}, "shuffle_chunk_size has no effect: .* the shuffle is complete"),
        ({"shuffle_chunk_seed": 4}, "shuffle_chunk_seed has no effect"),
        ({"dtype": "uint8", "mean_r": 3}, "mean_r has no effect: uint8"),
        ({"dtype": "int8", "scale": 3}, "scale has no effect: of int8"),
        ({"max_random_area": 0.5}, "max_random_area has no effect: only random_resized_crop"),
        ({"mean_a": 3}, "mean_a has no effect: images have 3 channels"),
        ({"mirror": True, "rand_mirror": True}, "rand_mirror has no effect: mirror exchanges"),
        ({"rotate": 3, "max_rotate_angle": 4}, "max_rotate_angle has no effect: the angle is that of rotate"),
        ({"rotate_list": (3, 4), "rotate": 4}, "rotate has no effect: the angles are those of rotate_list"),
    ],
)
def test_arguments_that_change_nothing_are_reported(ten, arguments, why):
    with pytest.warns(UnusedParameterWarning, match=why) as caught:
        make(ten, **arguments)
    assert len(caught) == 1
    assert caught[0].filename.endswith("image_records.py")


def test_values_that_change_nothing_anyway_are_not_reported(ten):
    # Arguments that scripts pass from their command line.
    make(ten, max_random_area=1, min_random_area=1, mean_a=0, std_a=1, mirror=True, rand_mirror=False)
    make(ten, random_resized_crop=False, min_random_area=0.08, min_aspect_ratio=0.75, max_aspect_ratio=1.3)
    make(ten, path_imgidx=None, path_imglist=None, mean_img=None, seed_aug=None, dtype=None)


def test_the_warning_points_at_the_caller(ten):
    with pytest.warns(UnusedParameterWarning) as caught:
        mx.io.ImageRecordUInt8Iter(
            path_imgrec=ten,
            data_shape=(3, 4, 4),
            batch_size=4,
            executor="inline",
            mean_r=3,
            scale=2,
            verbose=0,
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__


@with_cases("name", ["path_imgrec", "data_shape", "batch_size"])
@with_cases("given", [True, False], ids=["none", "missing"])
def test_a_missing_argument_is_named(ten, name, given):
    arguments = {"path_imgrec": ten, "data_shape": (3, 4, 4), "batch_size": 4}
    del arguments[name]
    if given:
        arguments[name] = None
    with pytest.raises(ValueError, match=f"Required parameter {name} of .* is not presented") as caught:
        mx.io.ImageRecordIter(**arguments)
    assert isinstance(caught.value, MissingParameterError)
    assert isinstance(caught.value, mx.MXNetError)
    assert pickle.loads(pickle.dumps(caught.value)).name == name


@with_cases("path", [" ", ";", []])
def test_a_path_of_nothing_is_missing(path):
    with pytest.raises(MissingParameterError, match="path_imgrec"):
        make(path)


@with_cases(
    ("arguments", "text"),
    [
        ({"data_shape": (5, 28, 28)}, r"Invalid output shape \[5,28,28\]"),
        ({"data_shape": (3, 0, 28)}, "Invalid output shape"),
        ({"data_shape": (28, 28)}, "wrong dimensions, expected dimension=3"),
        ({"batch_size": 0}, "value 0 for Parameter batch_size should be greater equal to 1"),
        ({"preprocess_threads": 0}, "value 0 for Parameter preprocess_threads should be greater equal to 1"),
        ({"label_width": 0}, "value 0 for Parameter label_width"),
        ({"resize": "abc"}, "Invalid Parameter format for resize expect int but value='abc'"),
        ({"ctx": "tpu"}, "Invalid Input: 'tpu', valid values are: {'cpu', 'gpu'}"),
        ({"dtype": "float64"}, "dtype: Invalid Input: 'float64'"),
        ({"fill_value": 256}, "should be smaller equal to 255"),
        ({"inter_method": 5}, "invalid inter_method 5"),
        ({"max_crop_size": 20}, "give both"),
        ({"max_crop_size": 2, "min_crop_size": 3}, "give both"),
        ({"random_resized_crop": True, "rand_crop": True}, "random_resized_crop to true conflicts"),
        ({"random_resized_crop": True, "max_random_scale": 2}, "random_resized_crop to true conflicts"),
        ({"random_resized_crop": True, "min_random_area": 0}, "must be more than 0"),
        ({"std_g": 0}, "std_g must not be 0"),
        ({"min_aspect_ratio": 0.75}, "min_aspect_ratio=0.75 is given without max_aspect_ratio"),
        ({"min_random_scale": 0}, "must be more than 0"),
        ({"data_shape": (1, 4, 4), "brightness": 0.1}, "brightness: only images of 3 channels"),
        ({"data_shape": (4, 4, 4), "pca_noise": 0.1}, "pca_noise: only images of 3 channels"),
        ({"batch_size": 21}, "number of input images must be bigger than the batch size"),
        (
            {"path_imgrec": "/nowhere/a.rec"},
            "Cannot find any files that matches the URI pattern /nowhere/a.rec",
        ),
        ({"aug_seq": "other"}, "aug_seq: Invalid Input"),
    ],
)
def test_wrong_arguments(ten, arguments, text):
    rest = {"path_imgrec": ten, **arguments}
    path = rest.pop("path_imgrec")
    with warnings.catch_warnings(), pytest.raises(mx.MXNetError, match=text):
        warnings.simplefilter("ignore", UnusedParameterWarning)
        make(path, **rest)


def test_arguments_are_read_through_text(ten):
    iterator = make(
        ten,
        data_shape="(3,4,4)",
        batch_size="4",
        shuffle="True",
        seed="3",
        min_aspect_ratio="None",
        rotate_list="0",
        rand_crop=0,
    )
    assert iterator.provide_data == [("data", (4, 3, 4, 4))]
    with pytest.raises(TypeError, match="can only accept keyword arguments"):
        mx.io.ImageRecordIter(ten, path_imgrec=ten, data_shape=(3, 4, 4), batch_size=4)


@with_cases(
    ("function", "table"),
    [
        (mx.io.ImageRecordIter, IMAGE_PARAMETERS),
        (mx.io.ImageRecordUInt8Iter, UINT8_PARAMETERS),
        (mx.io.ImageRecordInt8Iter, INT8_PARAMETERS),
        (mx.io.ImageDetRecordIter, DETECTION_PARAMETERS),
    ],
    ids=["float", "uint8", "int8", "detection"],
)
def test_help_lists_every_argument(function, table):
    text = function.__doc__
    assert all(len(line) <= 120 for line in text.splitlines())
    words = " ".join(text.split())
    for name, parameter in table.items():
        start = words.index(f" {name}: {parameter.expected}")
        entry = words[start : start + 200]
        default = (
            "required" if repr(parameter.default).startswith("<object") else f"default {parameter.default!r}"
        )
        assert default in entry
        assert parameter.about or parameter.idle
        assert (parameter.about or "Without effect").split()[0] in entry


def test_the_dtype_of_an_iterator_with_one_can_be_given(ten):
    arguments = {"path_imgrec": ten, "data_shape": (3, 4, 4), "batch_size": 4, "executor": "inline"}
    assert mx.io.ImageRecordUInt8Iter(**arguments, dtype="uint8").next().data[0].dtype == "uint8"
    with pytest.raises(mx.MXNetError, match=r"dtype: Invalid Input: 'float32', valid values are: \{'int8'\}"):
        mx.io.ImageRecordInt8Iter(**arguments, dtype="float32")


# --- calls of well-known scripts: every keyword is known, and no intended one warns, which would be an error ---

SCRIPTS = json.loads(Path(__file__).with_name("record_scripts.json").read_text())


@with_cases("name", SCRIPTS.keys() - {"detector, train"})
def test_calls_of_scripts(ten, name):
    assert next(make(ten, strict=True, **SCRIPTS[name])).data[0].shape == (4, 3, 4, 4)


def test_a_call_of_a_script_that_trains_a_detector(tmp_path):
    label = [2, 5, 0, 0.1, 0.2, 0.5, 0.6]
    path = write(tmp_path / "four.rec", golden_images(), [label] * 4)
    row = make_det(path, strict=True, **SCRIPTS["detector, train"]).next().label[0][0].asnumpy()
    assert row[4:6].tolist() == [2, 5]
