"""Tests of the error classes: one base, built-in parents, attributes that survive pickling."""

import copy
import inspect
import pickle

import recordio
from recordio import errors
from tests.cases import with_cases

CLASSES = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
FACTS = {
    "path": "a.rec",
    "offset": 12,
    "expected": 0xCED7230A,
    "found": 5,
    "line": 3,
    "key": "k",
    "position": 9,
    "length": 4,
    "url": "s3://x",
}


@with_cases("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_errors_survive_pickling_with_their_facts_and_notes(cls):
    facts = {name: FACTS[name] for name in inspect.signature(cls).parameters if name in FACTS}
    error = cls("what happened", **facts)
    error.add_note("while reading sample 5")
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(back) is cls
        assert str(back) == str(error)
        assert back.message == "what happened"
        assert {name: getattr(back, name) for name in facts} == facts
        assert back.__notes__ == ["while reading sample 5"]
    assert isinstance(error, recordio.RecordIOError)
    assert "what happened" in str(error)


@with_cases(
    ("cls", "parent"),
    [
        (errors.CorruptRecordError, ValueError),
        (errors.TruncatedRecordError, EOFError),
        (errors.TruncatedRecordError, errors.CorruptRecordError),
        (errors.CorruptIndexError, ValueError),
        (errors.IndexNotFoundError, FileNotFoundError),
        (errors.RecordFileNotFoundError, FileNotFoundError),
        (errors.RecordKeyError, KeyError),
        (errors.RecordIndexError, IndexError),
        (errors.ModeError, AssertionError),
        (errors.ClosedError, RuntimeError),
        (errors.WrongProcessError, RuntimeError),
        (errors.InvalidFlagError, ValueError),
        (errors.WriterPicklingError, TypeError),
    ],
)
def test_errors_are_also_what_callers_expect(cls, parent):
    assert issubclass(cls, parent)


def test_not_found_errors_fill_the_fields_of_oserror():
    error = errors.RecordFileNotFoundError("no such file", path="a.rec")
    assert (error.errno, error.filename, error.path) == (2, "a.rec", "a.rec")


def test_the_message_has_the_place_and_the_details():
    text = str(errors.CorruptRecordError("no head", path="a.rec", offset=8, expected=0xCED7230A, found=0))
    assert text.startswith("a.rec, byte 8: no head (expected 0xCED7230A, found 0)")
