"""Tests of collation as in torch: any samples, in this process and in workers."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.aioloader.interop.torch_samples import (
    MARKS,
    Colour,
    Point,
    Record,
    Samples,
    Table,
    check,
    collate_objects,
    outcome,
)

pytestmark = MARKS


def column_samples(torch):
    """Return columns of samples, to compare with the results of default_collate."""
    flat = torch.arange(6.0)
    return {
        "integers": [1, 2, 3],
        "floats": [1.5, 2.5, float("nan")],
        "booleans": [True, False, True],
        "integers, then floats": [1, 2.5, 3],
        "floats, then integers": [1.5, 2, 3],
        "booleans and integers": [True, 2, 3],
        "integers and booleans": [2, True, False],
        "large integers": [2**62, -(2**63), 0],
        "too large integers": [2**63, 1, 2],
        "texts": ["a", "bc", ""],
        "bytes": [b"a", b"b\0", b""],
        "nothing": [None, None, None],
        "nothing at the end": [1, 2, None],
        "enums": [Colour.RED, Colour.RED, Colour.RED],
        "complex": [1j, 2j, 3j],
        "tensors": [flat, flat + 1, flat * 2],
        "scalar tensors": [torch.tensor(1), torch.tensor(2), torch.tensor(3)],
        "tensors and floats": [torch.tensor(1.0), 2.0, 3.0],
        "floats and tensors": [1.0, torch.tensor(2.0), torch.tensor(3.0)],
        "tensors of two dtypes": [flat, flat.double(), flat],
        "tensors of two shapes": [flat, flat[:3], flat],
        "empty tensors": [torch.empty(0, 3)] * 3,
        "views": [flat.view(2, 3).t(), flat.view(2, 3).t() + 1, flat.view(2, 3).t()],
        **{
            f"tensors of {dtype}": [torch.ones(2, 2, dtype=dtype)] * 3
            for dtype in (
                torch.uint8,
                torch.int16,
                torch.bool,
                torch.float16,
                torch.bfloat16,
                torch.complex64,
            )
        },
        "sparse tensors": [flat.to_sparse()] * 3,
        "tensors with a gradient": [flat.clone().requires_grad_()] * 3,
        "arrays": [np.arange(4, dtype=np.float32) + number for number in range(3)],
        "arrays without axes": [np.array(1.0), np.array(2.0), np.array(3.0)],
        "arrays of two shapes": [np.zeros(2), np.zeros(3), np.zeros(2)],
        "arrays of two dtypes": [np.zeros(2), np.zeros(2, np.float32), np.zeros(2)],
        "arrays and tensors": [np.zeros(2), torch.zeros(2), np.zeros(2)],
        "arrays of texts": [np.array(["a"])] * 3,
        "arrays of objects": [np.array([None])] * 3,
        **{
            f"numpy's scalars of {dtype}": [np.dtype(dtype).type(1)] * 3
            for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "?")
        },
        **{
            f"arrays of {dtype}": [np.ones((2, 2), dtype)] * 3
            for dtype in ("u2", "u4", "f2", "c8", "?", "g", "M8[s]")
        },
        "numpy's texts": [np.str_("a"), np.str_("b"), np.str_("c")],
        "numpy's scalars and numbers": [np.float32(1), 2.5, 3],
        "numbers and numpy's scalars": [1, np.int32(2), np.int64(3)],
        "tuples": [(1, 2.5, "a"), (2, 3.5, "b"), (3, 4.5, "c")],
        "lists": [[1, 2.5, "a"], [2, 3.5, "b"], [3, 4.5, "c"]],
        "tuples of two lengths": [(1, 2), (1, 2, 3), (1, 2)],
        "empty tuples": [(), (), ()],
        "named tuples": [Point(1, "a"), Point(2, "b"), Point(3, "c")],
        "dicts": [{"x": 1, "name": "a"}, {"x": 2, "name": "b"}, {"x": 3, "name": "c"}],
        "dicts in another order": [{"x": 1, "y": 2}, {"y": 1, "x": 2}, {"x": 3, "y": 4}],
        "dicts with more keys": [{"x": 1}, {"x": 2, "y": 3}, {"x": 4}],
        "dicts with fewer keys": [{"x": 1, "y": 2}, {"x": 2}, {"x": 4, "y": 2}],
        "empty dicts": [{}, {}, {}],
        "ordered dicts": [collections.OrderedDict(b=1, a=2)] * 3,
        "dicts of the caller's own": [Table(x=1), Table(x=2), Table(x=3)],
        "dataclasses": [Record(1), Record(2), Record(3)],
        "deep": [{"a": (n, [flat + n, {"b": Point("t", n)}]), "c": [["u", (n,)]]} for n in range(3)],
        "tuples and lists": [(1, 2), [3, 4], (5, 6)],
        "ranges": [range(3), range(3), range(3)],
        "sets": [{1}, {2}, {3}],
    }


def test_every_column_is_collated_as_torch_does(torch, ours):
    for name, samples in column_samples(torch).items():
        dataset = Samples(samples)
        try:
            check(torch, ours, dataset, batch_size=2)
            check(torch, ours, dataset, batch_size=3)
            check(torch, ours, dataset, batch_size=None)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.slow
def test_every_column_is_collated_as_torch_does_in_worker_processes(torch, ours):
    # All columns in one dataset, so that there is one worker process: those that fail are tested inline.
    columns = {}
    for name, samples in column_samples(torch).items():
        made = outcome(torch.utils.data.DataLoader, Samples(samples), batch_size=3)
        if isinstance(made, list) and "gradient" not in name:
            columns[name] = samples
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for batch_size in (2, 3, None):
        check(torch, ours, Samples(rows), batch_size=batch_size, num_workers=1)
    check(
        torch, ours, Samples(rows), batch_size=2, num_workers=1, collate_fn=torch.utils.data.default_collate
    )
    check(torch, ours, Samples([*columns.values()]), batch_size=2, num_workers=1, collate_fn=list)


leaves = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=2),
    st.just("tensor"),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(structure=trees, kinds=st.lists(trees, max_size=2), batch_size=st.integers(1, 4))
def test_any_samples_are_collated_as_torch_does(torch, ours, structure, kinds, batch_size):
    def made(tree, number):
        if tree == "tensor":
            return torch.full((2,), number)
        if isinstance(tree, dict):
            return {key: made(each, number) for key, each in tree.items()}
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return type(tree)(*[made(each, number) for each in tree])
        return type(tree)(made(each, number) for each in tree) if isinstance(tree, (list, tuple)) else tree

    samples = [made(structure, number) for number in range(4)] + [made(tree, 9) for tree in kinds]
    check(torch, ours, Samples(samples), batch_size=batch_size)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_gives_what_it_gives(torch, ours, workers):
    dataset = Samples([(torch.full((3, 2), float(number)), number) for number in range(10)])
    (first, *_), _ = check(
        torch, ours, dataset, batch_size=4, num_workers=workers, collate_fn=collate_objects
    )
    assert first["again"] is first["images"]
    first["images"] += 1  # it may be written to
    check(torch, ours, dataset, batch_size=4, num_workers=workers, collate_fn=lambda samples: None)
    check(torch, ours, dataset, batch_size=None, num_workers=workers, collate_fn=lambda sample: [sample[1]])


def test_batches_that_are_kept_do_not_change(torch, ours):
    dataset = Samples([(torch.full((64, 64), float(number)), number) for number in range(40)])
    for options in ({}, {"collate_fn": torch.utils.data.default_collate}, {"collate_fn": collate_objects}):
        loader = ours(dataset, 4, num_workers=1, **options)
        kept = list(loader)
        for _ in range(3):
            for _ in loader:
                pass
        loader.close()
        images = [batch["images"] if isinstance(batch, dict) else batch[0] for batch in kept]
        assert [each[:, 0, 0].tolist() for each in images] == [
            list(map(float, range(start, start + 4))) for start in range(0, 40, 4)
        ]


def mixed(samples, *, rng):
    return float(rng.random()), np.stack([image for image, _ in samples])


@pytest.mark.parametrize("workers", [0, 1])
def test_collate_functions_of_this_project_draw_from_the_seed_of_the_loader(torch, ours, workers):
    """Also a caller's function that cannot be called without `rng`."""
    from aioloader.batchify import Compose, Stack
    from aioloader.transforms import MixUp

    data = Samples([(np.full((3, 2, 2), place, np.float32), place % 3) for place in range(8)])

    def batches(collate, seed):
        loader = ours(
            data,
            4,
            collate_fn=collate,
            num_workers=workers,
            generator=torch.Generator().manual_seed(seed),
        )
        found = [list(loader), list(loader)]
        loader.close()
        return repr(found)

    for collate in (Compose(Stack(), MixUp(num_classes=3)), mixed):
        assert batches(collate, 1) == batches(collate, 1) != batches(collate, 2)


def test_a_default_of_rng_is_left_to_the_script(ours):
    def collate(samples, rng="its own"):
        return rng

    assert list(ours([1, 2, 3], 3, collate_fn=collate)) == ["its own"]
