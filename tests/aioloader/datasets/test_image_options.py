"""Tests of the options that all datasets of images have: written once, and shown by every class."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import aioloader
from aioloader.datasets.decoding import ImageOptions, ShardKeywords
from aioloader.formats import EncodedDataset
from tests.cases import with_cases

CLASSES = [
    *(aioloader.ImageFolderDataset, aioloader.ImageListDataset, aioloader.ImageRecordDataset),
    *(aioloader.MDSDataset, aioloader.ParquetDataset, aioloader.TarDataset, aioloader.TFRecordDataset),
    *(aioloader.datasets.InsightFaceDataset, EncodedDataset),
]


def test_type_checkers_see_the_options_that_there_are() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(ImageOptions)}
    assert {name: hint.__forward_arg__ for name, hint in ShardKeywords.__annotations__.items()} == fields


@with_cases("dataset", CLASSES)
def test_a_signature_has_all_options_by_name_with_their_defaults(dataset: Any) -> None:
    shown = inspect.signature(dataset).parameters
    for field in dataclasses.fields(ImageOptions):
        assert shown[field.name].default == field.default
        if field.name != "flag":
            assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY
    assert all(each.kind is not each.VAR_KEYWORD for each in shown.values())


@with_cases("dataset", CLASSES)
def test_an_unknown_option_names_the_class_and_the_closest_one(dataset: Any) -> None:
    text = f"^{dataset.__name__} has no argument max_pixel; did you mean max_pixels\\?$"
    with pytest.raises(TypeError, match=text):
        dataset("nowhere", max_pixel=1)
