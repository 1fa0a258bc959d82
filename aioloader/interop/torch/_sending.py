"""Functions of a script as worker processes receive them, and the reason why one of them cannot be sent.

Torch's workers are forks, so that a collate function may be a method of anything. A method of an object that cannot be
pickled, such as a LightningDataModule that knows its trainer, is sent without the attributes that prevent it. Whether a
dataset or a function has changed since the last epoch is found out without reading all of it.
"""

from __future__ import annotations

import functools
import io
import operator
import os
import zlib
from dataclasses import dataclass
from itertools import chain
from pathlib import PosixPath, PurePosixPath
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from aioloader.errors import WorkerError
from aioloader.executors.pickling import MappedFiles, Pickler, dumps
from aioloader.executors.transport import LARGE

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable, Iterator, Sequence


_DEPTH = 8
_WEIGHTS = ("_modules", "_parameters", "_buffers")
_LIGHTNING = ("lightning", "pytorch_lightning")
_TRAINERS = ("trainer", "_trainer", "_fabric")
_CALLER = "move what it needs to a function of a module or to a small object"
_SHARE = "to pass values to running workers, share a tensor (share_memory_())"
_ADVICE = {
    "dataset": "make it in __getitem__ at its first use",
    "collate_fn": _CALLER,
    "worker_init_fn": _CALLER,
}


def _error_of(value: Any) -> Exception | None:
    """Return the error of pickling an object; None if there is none."""
    try:
        dumps(value, lambda _: None)
    except Exception as error:  # pickling a foreign object can raise any exception
        return error
    return None


class LeftOut:
    """Replacement of an attribute that was not sent to a worker process. Every use of it is an error that says so.

    Args:
        name: the attribute, with its owner's class.
        reason: why it was not sent.
    """

    __slots__ = ("_name", "_reason")

    def __init__(self, name: str, reason: str) -> None:
        self._name = name
        self._reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftOut, (self._name, self._reason)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise WorkerError(
            f"{self._name} was not sent to the worker processes with the method that uses it, because {self._reason}; "
            f"{_CALLER}, or set num_workers=0"
        )

    __getattr__ = __call__ = __getitem__ = __setitem__ = __contains__ = __iter__ = __next__ = _refuse
    __len__ = __bool__ = __enter__ = __exit__ = __int__ = __float__ = __index__ = __matmul__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse


@dataclass(frozen=True)
class DetachedMethod:
    """Method of an object of which only some attributes are sent.

    Attributes:
        function: the method's function.
        owner: class of the object.
        attributes: the object's attributes.
    """

    function: Callable[..., Any]
    owner: type
    attributes: dict[str, Any]

    @functools.cached_property
    def _method(self) -> MethodType:
        make: Any = self.owner.__new__
        made = make(self.owner)
        vars(made).update(self.attributes)
        return MethodType(self.function, made)

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "owner": self.owner, "attributes": self.attributes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._method(*args, **options)


def detached(function: Any) -> Any:  # the caller's, of any class
    """Return a function in a form that can be sent to worker processes, if there is one; else the function itself.

    A method, or an object that is called, is sent without the attributes that cannot be pickled. A module or data
    module of Lightning is sent without its trainer, which refers to everything, and without weights, which change all
    the time and may be on a device.
    """
    if type(function) is functools.partial:
        return functools.partial(detached(function.func), *function.args, **function.keywords)
    if function is None or isinstance(function, FunctionType):
        return function
    owner = function.__self__ if isinstance(function, MethodType) else function
    called = function if isinstance(function, MethodType) else vars(type(owner)).get("__call__")
    if isinstance(owner, type) or called is None or not hasattr(owner, "__dict__"):
        return function
    kind = type(owner)
    kept_back = _kept_back(owner)
    if not kept_back.keys() & vars(owner).keys() and _error_of(function) is None:
        return function
    attributes = {}
    for name, value in vars(owner).items():
        reason = kept_back.get(name)
        if reason is None and (error := _error_of(value)) is not None:
            reason = f"it cannot be pickled ({error})"
        attributes[name] = value if reason is None else LeftOut(f"{kind.__name__}.{name}", reason)
    made = DetachedMethod(called.__func__ if isinstance(called, MethodType) else called, kind, attributes)
    return made if _error_of(made) is None else function


def can_be_sent(function: Any) -> bool:
    """Return whether all that a function refers to may be sent to worker processes, if it can be pickled."""
    called = function.func if type(function) is functools.partial else function
    owner = called.__self__ if isinstance(called, MethodType) else called
    return not _kept_back(owner)


def _kept_back(owner: Any) -> dict[str, str]:
    """Return the attributes of an object that are not sent even if they can be pickled, and why."""
    if not any(base.__module__.partition(".")[0] in _LIGHTNING for base in type(owner).__mro__):
        return {}
    found = dict.fromkeys(_TRAINERS, "the trainer is not sent")
    if isinstance(owner, torch.nn.Module):
        found.update(dict.fromkeys(_WEIGHTS, "the weights of a LightningModule are not sent"))
    return found


def unsendable(parts: dict[str, Any]) -> str | None:
    """Return which part of a loader cannot be sent to worker processes, why, and what to do; None if all can.

    Args:
        parts: the parts, by the name of their argument.
    """
    for name, part in parts.items():
        error = _error_of(part)
        if error is not None:
            way, value, why = _culprit(part, error)
            advice = _SHARE if _is_of_multiprocessing(value) else _ADVICE[name]
            where = f"{way} is a {type(value).__name__}, which cannot be pickled ({why})"
            return f"the {name} cannot be sent to worker processes: {where}; {advice}, or set num_workers=0"
    return None


def _is_of_multiprocessing(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "multiprocessing"


def _culprit(part: Any, error: Exception) -> tuple[str, Any, Exception]:
    """Return the innermost object that cannot be pickled, after the way to it and before the error.

    Locks, queues and values of multiprocessing are not looked into: scripts do not know what they are made of.
    """
    way, value = _name_of(part), part
    seen = {id(part)}
    for _ in range(_DEPTH):
        if _is_of_multiprocessing(value):
            break
        for step, inner in _parts_of(value):
            found = None if id(inner) in seen else _error_of(inner)
            if found is not None:
                seen.add(id(inner))
                way, value, error = way + step, inner, found
                break
        else:
            break
    return way, value, error


def _name_of(value: Any) -> str:
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__name__}.{value.__name__}"
    return str(getattr(value, "__qualname__", type(value).__name__))


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of an object, each with the text that leads to it."""
    if isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{place}]", each) for place, each in enumerate(value.args))
        yield from ((f".keywords[{name!r}]", each) for name, each in value.keywords.items())
    elif isinstance(value, FunctionType):
        cells: Sequence[Any] = value.__closure__ or ()
        for name, cell in zip(value.__code__.co_freevars, cells, strict=True):
            yield f"'s variable {name}", cell.cell_contents
        yield from (
            (f"'s global {name}", value.__globals__[name])
            for name in value.__code__.co_names
            if name in value.__globals__
        )
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f".{name}", each) for name, each in vars(value).items())


# Objects of these classes never change, and neither do tuples of them: of many of them it suffices to compare which
# they are.
_TEXTS = frozenset([str, bytes])
_FIXED = frozenset([*_TEXTS, int, float, complex, bool, type(None), PosixPath, PurePosixPath])
_CONTAINERS = frozenset([list, tuple, set, frozenset, dict])
_MANY = 1000
_READ_WHOLE = 64 << 20
_PAGE = 4096
_ONE_IN = 16


class Changes:
    """Checksums of a dataset and of functions, one for each epoch.

    A checksum sees every change of what worker processes would receive, except in arrays and tensors in memory of
    more than 64 MiB: of these it reads one page (4 KiB) in 16, so that it sees a change of 64 KiB in a row. Memory
    maps of files, and torch's tensors in shared memory, are not read: workers see changes of them at once.

    Long lists, tuples, sets and dicts of texts and numbers, and of tuples of these, are not pickled again, but
    compared with those of the last epoch.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._used: dict[int, _Kept] = {}
        self._versions = 0
        self._files: MappedFiles | None = None

    def checksum(self, parts: Sequence[Any]) -> list[tuple[int, ...]]:
        """Return the checksums of parts; that of a part that cannot be pickled is empty."""
        self._files = None
        self._used = {}
        found = [self._of(part) for part in parts]
        self._kept = self._used
        return found

    def checksum_of_program(self, dataset: Any, functions: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return checksums of a dataset and of functions, and the functions in a form that can be sent, if possible."""
        sent = [function if can_be_sent(function) else detached(function) for function in functions]
        found = self.checksum([dataset, *sent])
        if () not in found[1:]:
            return found, sent
        sent = [
            function if known else detached(function) for known, function in zip(found[1:], sent, strict=True)
        ]
        return self.checksum([dataset, *sent]), sent

    def _of(self, part: Any) -> tuple[int, ...]:
        buffers: list[int] = []
        with io.BytesIO() as file:
            try:
                _Pickler(self, file, lambda buffer: buffers.append(self._of_buffer(buffer))).dump(part)
            except Exception:  # pickling a foreign object can raise any exception
                return ()
            with file.getbuffer() as blob:
                return zlib.crc32(blob), len(blob), *buffers

    def _of_buffer(self, buffer: pickle.PickleBuffer) -> int:
        with buffer.raw() as raw:
            if raw.nbytes >= LARGE:
                if self._files is None:
                    self._files = MappedFiles()
                place = self._files.place_of(raw)
                if place is not None and place.shared:
                    return zlib.crc32(repr(place).encode())
            if raw.nbytes <= _READ_WHOLE:
                return zlib.crc32(raw)
            pages = raw.nbytes // _PAGE
            return _checksum_of_pages(raw, pages)

    def version(self, items: Any) -> int | None:
        """Return a number that is another one if the contents of a list or the like have changed; None if unknown."""
        known = self._used.get(id(items)) or self._kept.get(id(items))
        if known is None or known.items is not items or not known.is_same(items):
            copy = _Kept.of(items)
            if copy is None:
                return None
            # A list that was made again may still have the contents of another one.
            known = next((each for each in self._kept.values() if each.is_equal(copy)), None)
            if known is None:
                self._versions += 1
                copy.version = self._versions
            else:
                copy.version = known.version
            known = copy
        self._used[id(items)] = known
        return known.version


class _Pickler(Pickler):
    def __init__(self, changes: Changes, file: io.BytesIO, take: Any) -> None:
        super().__init__(file, take, _inode)
        self._changes = changes

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind in _CONTAINERS and len(value) >= _MANY:
            version = self._changes.version(value)
            return None if version is None else (kind.__name__, version)
        return None


def _inode(fd: int) -> int:
    return os.fstat(fd).st_ino


class _Kept:
    """Long container, and what was in it.

    Attributes:
        items: the container.
        version: number of its contents.
    """

    def __init__(self, items: Any, copy: list[Any], kinds: set[type]) -> None:
        self.items = items
        self.version = 0
        self._copy = copy
        self._kinds = kinds

    @classmethod
    def of(cls, items: Any) -> _Kept | None:
        """Return the record of a container; None if what is in it may change."""
        copy = _flat(items)
        kinds = set(map(type, copy))
        inner = kinds - {tuple}
        if tuple in kinds:
            tuples = (each for each in copy if type(each) is tuple)
            inner |= set(map(type, chain.from_iterable(tuples)))
        return cls(items, copy, kinds) if inner <= _FIXED else None

    def is_same(self, items: Any) -> bool:
        """Return whether a container contains the same objects as before."""
        now = _flat(items)
        return len(now) == len(self._copy) and all(map(operator.is_, now, self._copy))

    def is_equal(self, other: _Kept) -> bool:
        """Return whether another container has the same contents: equal objects of the same classes."""
        return (
            type(self.items) is type(other.items)
            and self._kinds == other._kinds
            and len(self._copy) == len(other._copy)
            and self._copy == other._copy
            and _types(self._copy) == _types(other._copy)
        )


def _flat(items: Any) -> list[Any]:
    """Return the elements of a container; keys and values of a dict."""
    return [*items, *items.values()] if type(items) is dict else list(items)


def _types(values: list[Any]) -> list[Any]:
    """Return the classes of values, and of those in tuples: 1, 1.0 and True are equal, but not the same."""
    return [tuple(map(type, each)) if type(each) is tuple else type(each) for each in values]


def _checksum_of_pages(raw: memoryview, pages: int) -> int:
    """Return a checksum of the first page, the last one, and one in 16 of the others."""
    found = zlib.crc32(raw[(pages - 1) * _PAGE :])
    for page in range(0, pages, _ONE_IN):
        found = zlib.crc32(raw[page * _PAGE : (page + 1) * _PAGE], found)
    return found
