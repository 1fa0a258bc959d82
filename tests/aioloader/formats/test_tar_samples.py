"""Tests of the samples of tars: the rule of keys, and the arrays of an index."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tar.header import BLOCK
from aioloader.formats.tar.members import (
    EXTENDED,
    FOLDER,
    HOLED,
    LINKED,
    PLAIN,
    SPECIAL,
    SYMLINKED,
    UNKNOWN,
    TarMembers,
)
from aioloader.formats.tar.samples import (
    FOLLOWED,
    MISSING,
    OUTSIDE,
    TWICE,
    TarSamples,
    group_members,
    samples_of_arrays,
    split_name,
)
from tests.cases import with_cases


def grouped(
    *names: str, states: dict[int, int] | None = None, links: dict[int, str] | None = None
) -> TarSamples:
    """Return the samples of members of 100, 101, 102 ... bytes, some of which are hard links."""
    members = TarMembers()
    for number, name in enumerate(names):
        at = 2 * BLOCK * number
        state = (states or {}).get(number, PLAIN)
        size = 100 + number
        if links and number in links:
            members.links[number] = links[number].encode()
            state, size = LINKED, 0
        members.add(name.encode("utf-8", "surrogateescape"), at, at + BLOCK, size, state)
    return group_members(members)


def keys(samples: TarSamples) -> list[str]:
    """Return the keys of samples."""
    ends = samples.key_ends.tolist()
    text = samples.key_text.tobytes()
    return [
        text[begin:end].decode("utf-8", "surrogateescape")
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def fields(samples: TarSamples) -> list[dict[str, tuple[int, int]]]:
    """Return for each sample the size and the state of each extension."""
    names = [name.decode("utf-8", "surrogateescape") for name in samples.extensions()]
    found = []
    for low, high in zip(samples.first[:-1].tolist(), samples.first[1:].tolist(), strict=True):
        found.append(
            {
                names[samples.extension[row]]: (int(samples.size[row]), int(samples.state[row]))
                for row in range(low, high)
            }
        )
    return found


@with_cases(
    ("name", "found"),
    [
        ("a.jpg", ("a", "jpg")),
        ("a.JPG", ("a", "jpg")),
        ("a.seg.png", ("a", "seg.png")),
        ("train/n01/a.b.c", ("train/n01/a", "b.c")),
        ("./a.jpg", ("./a", "jpg")),
        ("a.", ("a", "")),
        ("a..jpg", ("a", ".jpg")),
        ("a.\xc4", ("a", "\xe4")),
        ("folder/__meta__.json", ("folder/__meta__", "json")),
        ("a", None),
        ("v1.0/a", None),
        ("folder/.hidden.jpg", None),
        ("__meta__/a.jpg", None),
    ],
)
def test_a_name_is_split_at_the_first_dot_of_its_last_part(name: str, found: tuple[str, str] | None) -> None:
    split = split_name(name.encode())
    assert split == (None if found is None else tuple(word.encode() for word in found))


@given(st.lists(st.sampled_from(["a", "b", ".", "/", "_", "__", "\n", "C", "\xdc"]), max_size=9).map("".join))
def test_the_rule_is_that_of_webdataset(name: str) -> None:
    split = split_name(name.encode())
    # The pattern of WebDataset's documentation: all up to the first dot of the last part is the key. Its newer
    # releases skip members that begin with this mark.
    found = re.match(r"((?:[\s\S]*/|)[^./]+)[.]([^/]*)\Z", name)
    if found is None or re.match(r"__[^/]*__($|/)", name):
        assert split is None
    else:
        assert split == (found[1].encode(), found[2].lower().encode())


def test_members_with_one_key_are_a_sample() -> None:
    samples = grouped("a.jpg", "a.cls", "b.jpg", "sub/b.jpg", "sub/b.seg.png")
    assert keys(samples) == ["a", "b", "sub/b"]
    assert fields(samples) == [
        {"jpg": (100, PLAIN), "cls": (101, PLAIN)},
        {"jpg": (102, PLAIN)},
        {"jpg": (103, PLAIN), "seg.png": (104, PLAIN)},
    ]
    assert samples.offset.tolist() == [0, 4 * BLOCK, 6 * BLOCK]
    assert samples.length.tolist() == [3 * BLOCK + 101, BLOCK + 102, 3 * BLOCK + 104]


def test_members_that_belong_to_no_sample_do_not_end_one() -> None:
    samples = grouped("README", "a.jpg", "__meta__", "folder", "x.lnk", "a.cls", "z", states={4: SYMLINKED})
    assert keys(samples) == ["a"]
    assert fields(samples) == [{"jpg": (101, PLAIN), "cls": (105, PLAIN)}]


def test_members_that_belong_to_no_sample_are_counted_by_kind() -> None:
    states = [PLAIN, HOLED, LINKED, SYMLINKED, SYMLINKED, SPECIAL, FOLDER, UNKNOWN, PLAIN]
    names = ["README", "._a.jpg", "COPY", "a.jpg", "b", "c.cls", "d.jpg", "e.jpg", "a.jpg"]
    samples = grouped(*names, states=dict(enumerate(states)))
    assert keys(samples) == ["a"]
    assert dict(zip(OUTSIDE.values(), samples.outside.tolist(), strict=True)) == {
        "files": 2,
        "hard links": 1,
        "symbolic links": 2,
        "devices and pipes": 1,
        "members of unknown types": 1,
    }


def test_an_extension_that_comes_twice_is_a_fault_of_that_field_only() -> None:
    samples = grouped("a.jpg", "a.JPG", "a.cls", "a.jpg", "b.jpg")
    assert fields(samples) == [{"jpg": (100, TWICE), "cls": (102, PLAIN)}, {"jpg": (104, PLAIN)}]
    assert samples.length.tolist() == [7 * BLOCK + 103, BLOCK + 104]


def test_places_of_fields() -> None:
    samples = grouped("a.jpg", "a.cls", "b.png", "b.jpg", "c.txt")
    places = samples.places([[b"jpg", b"png"], [b"cls"], [b"npy"]])
    assert places[:, 0].tolist() == [
        [BLOCK, 100, PLAIN],
        [3 * BLOCK, 103, PLAIN],  # the first of the names counts
        [0, 0, MISSING],
    ]
    assert places[:, 1, 2].tolist() == [PLAIN, MISSING, MISSING]
    assert (places[:, 2, 2] == MISSING).all()


words = st.sampled_from(["a", "b", "sub/a", "\udcff", "__x__", ""])
tails = st.sampled_from([".jpg", ".JPG", ".cls", "", ".a.b", "."])


@given(st.lists(st.tuples(words, tails, st.sampled_from([PLAIN, EXTENDED, HOLED, FOLDER])), max_size=12))
def test_samples_are_those_of_a_plain_loop(made: list[tuple[str, str, int]]) -> None:
    names = [key + tail for key, tail, _ in made]
    samples = grouped(*names, states={number: state for number, (_, _, state) in enumerate(made)})
    wanted: list[tuple[str, dict[str, list[int]]]] = []
    for number, (name, (_, _, state)) in enumerate(zip(names, made, strict=True)):
        split = split_name(name.encode("utf-8", "surrogateescape"))
        if split is None or state == FOLDER:
            continue
        key, extension = (word.decode("utf-8", "surrogateescape") for word in split)
        if not wanted or wanted[-1][0] != key:
            wanted.append((key, {}))
        wanted[-1][1].setdefault(extension, []).append(number)
    assert keys(samples) == [key for key, _ in wanted]
    for found, (_, members) in zip(fields(samples), wanted, strict=True):
        assert found == {
            extension: (100 + numbers[0], TWICE if len(numbers) > 1 else made[numbers[0]][2])
            for extension, numbers in members.items()
        }
    again = samples_of_arrays(samples._asdict())
    assert again is not None
    assert all((old == new).all() for old, new in zip(samples, again, strict=True))


# -- the arrays of an index -------------------------------------------------------------------------------------------

ARRAYS = grouped("a.jpg", "a.cls", "b.jpg", "c.jpg", "c.cls", links={3: "b.jpg"})._asdict()


def changed(name: str, place: int, value: int) -> dict[str, Any]:
    """Return the arrays with another value at one place."""
    array = ARRAYS[name].copy()
    array[place] = value
    return {**ARRAYS, name: array}


@with_cases(
    ("name", "place", "value"),
    [
        *((name, 0, -1) for name in ("offset", "length", "key_ends", "size", "target")),
        *((name, 0, (1 << 63) - 1) for name in ("offset", "data", "size", "target")),
        ("offset", 1, 3 * BLOCK + 1),  # the data would begin less than a header behind it
        ("length", 2, BLOCK),
        ("outside", 0, -1),
        ("outside", 1, (1 << 63) - 1),
        ("key_ends", 0, 3),
        ("key_ends", 2, 4),
        ("extension_ends", 1, 7),
        ("first", 0, 1),
        ("first", 1, -(1 << 63)),
        ("first", 3, 4),
        ("extension", 0, 2),
        ("extension", 0, -1),
        ("data", 0, BLOCK - 1),
        ("size", 4, 105),
        ("state", 0, 10),
        ("state", 0, FOLLOWED),
        ("state", 3, LINKED),
        ("target", 0, 7 * BLOCK),  # the data would end behind the header of the link
        ("size", 3, (1 << 63) - 1),
        ("state", 0, MISSING),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(name: str, place: int, value: int) -> None:
    assert samples_of_arrays(ARRAYS) is not None
    assert samples_of_arrays(changed(name, place, value)) is None


def test_samples_that_do_not_follow_one_another_are_refused() -> None:
    arrays = {**ARRAYS, "length": np.full(3, 1 << 40)}
    assert samples_of_arrays({**arrays, "offset": np.arange(3)}) is not None
    assert samples_of_arrays({**arrays, "offset": np.zeros(3, np.int64)}) is None


@with_cases("name", TarSamples._fields)
def test_arrays_of_other_shapes_and_dtypes_are_refused(name: str) -> None:
    array = ARRAYS[name]
    wrong = [array[:-1], array[:0], array[None], array.astype(np.float32), np.concatenate([array, array])]
    for each in wrong:
        assert samples_of_arrays({**ARRAYS, name: each}) is None
    assert samples_of_arrays({key: value for key, value in ARRAYS.items() if key != name}) is None


def test_ends_whose_differences_overflow_are_refused() -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    ends = np.array([most, least, -1, 3], np.int64)
    samples = grouped("a.jpg", "b.jpg", "c.jpg", "d.jpg")._asdict()
    assert samples_of_arrays({**samples, "key_ends": ends, "key_text": np.zeros(3, np.uint8)}) is None
    first = np.array([0, most, least, -1, 4], np.int64)
    assert samples_of_arrays({**samples, "first": first}) is None
