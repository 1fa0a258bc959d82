"""Tests of classes that scripts derive from or assign to, against what MXNet 1.9.1 returned (hook_cases.py)."""

import json
from pathlib import Path

import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.base import OutsideError, UnusedOverrideError
from tests.aioloader.mxnet import hook_cases
from tests.cases import with_cases

EXPECTED = json.loads(Path(__file__).with_name("hook_expected.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(hook_cases.made(str(tmp_path_factory.mktemp("hooks")), mx))


@pytest.fixture(scope="module")
def exercises(folder):
    return hook_cases.exercises(mx, folder)


def test_the_file_has_every_case():
    assert EXPECTED["cases"].keys() == hook_cases.CASES.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", hook_cases.CASES)
def test_hooks_and_attributes_act_as_in_mxnet(name, folder):
    here = json.loads(json.dumps(hook_cases.observe(mx, name, folder)))
    assert here == EXPECTED["cases"][name]


# Methods that MXNet calls and this package does not, by the end of their class, and where that is said or refused.
NOT_CALLED = {
    ("transforms.", "_alias"): "names are those of parameters",
    ("RandomApply", "register_child"): "names are those of parameters",
    ("DataLoaderIter", "reset"): "no epoch is started that nobody reads",
}


@pytest.mark.parametrize("path", EXPECTED["hooks"])
def test_methods_of_derived_classes_are_called_or_refused(path, exercises):
    use, of_class = exercises[path], hook_cases.named(mx, path)
    ignored = []
    for name in EXPECTED["hooks"][path]:
        try:
            called = hook_cases.calls(use, of_class, name)
        except UnusedOverrideError as error:
            called = error.method == name
        if not called and not any(part in path and name == method for part, method in NOT_CALLED):
            ignored.append(name)
    assert ignored == []


# Names of MXNet's classes that are absent here, by parts of the paths of the classes.
ABSENT = {
    # C++ handles, threads and connections
    "MXDataIter": "handle first_batch _debug_skip_load _debug_at_begin",
    "PrefetchingIter": "data_ready data_taken next_batch prefetch_threads started",
    "Queue": "_reader _recv _send _writer",
    "ConnectionWrapper": "_conn",
    # the dataset of a sampler would be kept in memory
    "FilterSampler": "_dataset _fn",
    # windows
    "ImageDetIter": "draw_next",
    # steps that derived classes may not override: UnusedOverrideError
    "DetRandomCropAug": "_calculate_areas _check_satisfy_constraints _intersect _random_crop_proposal _update_labels",
    "DetRandomPadAug": "_random_pad_proposal _update_labels",
    # parameters and graphs; the public ones raise OutsideError
    "transforms.": "_active _alias _build_cache _cached_graph _call_cached_op _check_container_with_block "
    "_clear_cached_op _collect_params_with_prefix _deferred_infer_shape _get_graph _infer_attrs apply cast "
    "collect_params export infer_shape infer_type initialize load load_parameters load_params optimize_for params "
    "register_forward_hook register_forward_pre_hook register_op_hook save save_parameters save_params summary",
    # a chain of one is no sequence
    "RandomApply": "__getitem__ __len__ add",
    "DataDesc": "_fields_defaults",
    "IRHeader": "_fields_defaults",
}


@pytest.mark.filterwarnings("ignore")
@with_cases("path", EXPECTED["names"])
def test_names_of_classes_are_present_or_listed_as_absent(path, exercises):
    of_class = hook_cases.named(mx, path)
    assert isinstance(of_class, type) or callable(of_class)
    present = set(dir(of_class))
    if isinstance(of_class, type):
        present |= hook_cases.names_of(of_class)
        uses = {hook_cases.named(mx, used): use for used, use in exercises.items()}
        if of_class in uses:
            present |= vars(hook_cases.instance_of(uses[of_class], of_class)).keys()
        present |= vars(of_class).get("__annotations__", {}).keys()
    absent = {name for part, names in ABSENT.items() if part in path for name in names.split()}
    assert set(EXPECTED["names"][path]) - present - absent == set()


def test_public_names_of_parameters_raise_when_used():
    resize = mx.gluon.data.vision.transforms.Resize(4)
    for name in ABSENT["transforms."].split():
        if name[0] != "_":
            with pytest.raises(OutsideError, match=f"Resize.{name}"):
                getattr(resize, name)
