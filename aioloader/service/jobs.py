"""An image in work, the requests that wait for it, and their results."""

from __future__ import annotations

import copy
import dataclasses
import sys
import types
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import numpy as np

from aioloader.errors import ImageError, ImageTimeoutError
from aioloader.foundation.pytree import flatten
from aioloader.transforms.pillow import is_pillow_image

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from aioloader.foundation.types import WorkSpan
    from aioloader.service.references import ReadImage, Reference
    from aioloader.service.stats import ImageTrace

Phase = Literal["queue", "read", "work", "done"]

_UNCHANGEABLE = (type(None), bool, int, float, complex, str, bytes, np.number, np.bool_)
_WITHOUT_PARTS = frozenset((str, bytes, bytearray, int, float, bool, complex, types.NoneType))
_CONTAINERS = (list, tuple, set, frozenset, deque)
_NOT_ITS_OWN = (type, types.ModuleType, types.FunctionType, types.MethodType)
# Pillow stores pixels of three bands in four bytes.
_PIXEL_NBYTES = {"1": 1, "L": 1, "P": 1}


class ResultSize(NamedTuple):
    """Size of the result of an image, as far as it is known from its header.

    Attributes:
        nbytes: bytes that it will take, or may take.
        shape: of its first array, if the processor announces it.
        pixels: of the encoded image, if the processor does not announce the size of its result.
    """

    nbytes: int = 0
    shape: tuple[int, ...] | None = None
    pixels: int = 0


_UNKNOWN = ResultSize()


@dataclass(slots=True, eq=False)
class Job:
    """One image that is being made, for one or several waiters.

    Attributes:
        reference: the image.
        share: jobs with equal values make the same image; None: nobody may join this one. Of a path or URL it is the
            place until the bytes are being read, and then their version.
        draw: number of the random draws of the image.
        order: arguments of `Schedule.push`: priority, first round, request, place.
        phase: what happens to it now.
        image: its bytes, once they are read.
        waiters: those who wait for it.
        scope: cancels its reading; None while it is not read.
        chunk: the chunk that it is made in; None before and after.
        began: time at which it entered the service (seconds, `time.perf_counter`).
        abandoned: nobody waits any more.
        size: of its result, once its header is known.
        queued_at, sent_at: when it was read, and when it was sent to a worker.
        trace: records its stages, or None.
    """

    reference: Reference
    share: Hashable
    draw: int
    order: tuple[int, int, int, int]
    began: float
    phase: Phase = "queue"
    image: ReadImage | None = None
    waiters: list[Waiter] = field(default_factory=list)
    scope: anyio.CancelScope | None = None
    chunk: ChunkInWork | None = None
    abandoned: bool = False
    size: ResultSize = _UNKNOWN
    queued_at: float = 0.0
    sent_at: float = 0.0
    trace: ImageTrace | None = None

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        self.phase = phase
        if self.trace is not None:
            # Until the chunk has its memory, and is with the executor.
            self.trace.timeline.enter("memory" if phase == "work" else phase)


@dataclass(slots=True, eq=False)
class HeaderRead:
    """A header that is to be read.

    Attributes:
        reference: the image.
        turn: set when it may be read.
    """

    reference: Reference
    turn: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class ChunkInWork:
    """Jobs that are made together.

    Attributes:
        jobs: the jobs; the place of a job is its row.
        scope: cancels the work on them.
        wanted: how many of them somebody waits for.
        patience: see `Chunk.patience`: of those that nobody waits for any more, the seconds that they were allowed.
        given_at: when they were passed to the executor.
        work_spans: the chunk as its worker saw it, for traces; empty without a trace.
    """

    jobs: list[Job]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    wanted: int = 0
    patience: dict[int, float] = field(default_factory=dict)
    given_at: float = 0.0
    work_spans: list[WorkSpan] = field(default_factory=list)

    def give(self) -> None:
        """Take note that they are passed to the executor now."""
        self.given_at = perf_counter()
        for job in self.jobs:
            if job.trace is not None:
                job.trace.timeline.enter("work")


@dataclass(frozen=True, slots=True)
class Shared:
    """An image that several callers have, or the cache.

    Attributes:
        value: the image. Nobody may change it.
        name: short text that names it.
    """

    value: Any
    name: str

    @property
    def takes_long(self) -> bool:
        """Return True if `private` may copy many bytes."""
        return not all(_is_plain(leaf) or isinstance(leaf, _UNCHANGEABLE) for leaf in flatten(self.value)[1])

    @property
    def nbytes(self) -> int:
        """Return the bytes of its arrays."""
        return sum(leaf.nbytes for leaf in flatten(self.value)[1] if isinstance(leaf, np.ndarray))

    def private(self) -> Any:
        """Return the image for one caller: arrays are read-only views, all else is a copy.

        Raises:
            ImageError: something in it cannot be copied.
        """
        own: dict[int, Any] = {}
        for leaf in flatten(self.value)[1]:
            if _is_plain(leaf):
                own[id(leaf)] = view = leaf.view()
                view.flags.writeable = False
        try:
            return copy.deepcopy(self.value, own)
        except Exception as error:
            reason = (
                f"what the processor returned cannot be copied, so that each caller has its own: "
                f"{type(error).__name__}: {error}; return arrays and plain values"
            )
            raise ImageError(self.name, "collate", reason) from error


def _is_plain(leaf: Any) -> bool:
    # Other classes have more than their numbers, such as a mask.
    return type(leaf) is np.ndarray and not leaf.dtype.hasobject


@dataclass(slots=True, eq=False)
class Request:
    """Images that a caller waits for together.

    Attributes:
        number: of the request, in the order of arrival.
        priority: larger is earlier.
        first_round: see `Schedule`.
        timeout: seconds for each image; None: no limit.
        fail_fast: the first error ends the waiting.
        waits_for_room: its images wait for places also with ``overflow="raise"``.
        waiters: one for each image, in the order of the references.
        waiting: the number of those that are not settled.
        event: set when nothing is left to wait for.
        on_end: called then too, if it is not None.
    """

    number: int
    priority: int
    first_round: int
    timeout: float | None
    fail_fast: bool = True
    waits_for_room: bool = False
    waiters: list[Waiter] = field(default_factory=list, init=False)
    waiting: int = field(default=0, init=False)
    event: anyio.Event = field(default_factory=anyio.Event, init=False)
    on_end: Callable[[], object] | None = field(default=None, init=False)

    def hold(self) -> None:
        """Keep the request from ending while images are added to it."""
        self.waiting += 1

    def release(self) -> None:
        """End `hold`: all images were added."""
        self.waiting -= 1
        if not self.waiting:
            self._end()

    def _end(self) -> None:
        self.event.set()
        if self.on_end is not None:
            self.on_end()

    def add_failed(self, error: BaseException) -> None:
        """Add an image that was refused."""
        Waiter(self, None, None).settle(error=error)

    def settled(self, waiter: Waiter) -> None:
        """Take note of a waiter that has its image or its error."""
        self.waiting -= 1
        if not self.waiting or (self.fail_fast and waiter.error is not None):
            self._end()

    def take(self) -> list[tuple[Any, BaseException | None]]:
        """Return image and error of each reference, and forget them.

        The request and its waiters refer to each other, so that images would stay until the garbage collector runs.
        """
        waiters, self.waiters = self.waiters, []
        return [waiter.take() for waiter in waiters]

    def first_error(self) -> BaseException | None:
        """Return the error of the first image that failed, in the order of the references; None if none did."""
        return next((waiter.error for waiter in self.waiters if waiter.error is not None), None)


class Waiter:
    """One image of one request.

    Attributes:
        request: the request.
        reference: the image, or None if it was refused.
        job: the job that it waits for; None once it is settled.
        deadline: time at which it gives up, or None.
        value: the image, once it is made; `Shared` if others have it too.
        error: the reason why it was not made, or None.
    """

    __slots__ = ("deadline", "error", "job", "reference", "request", "value")

    def __init__(self, request: Request, reference: Reference | None, deadline: float | None) -> None:
        self.request = request
        self.reference = reference
        self.job: Job | None = None
        self.deadline = deadline
        self.value: Any = None
        self.error: BaseException | None = None
        request.waiters.append(self)
        request.waiting += 1

    @property
    def asked(self) -> Reference:
        """Return the reference of an image that was accepted."""
        assert self.reference is not None
        return self.reference

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Take the image or the error."""
        self.value, self.error, self.job = value, error, None
        self.request.settled(self)

    def take(self) -> tuple[Any, BaseException | None]:
        """Return the image and the error, and forget them."""
        taken = self.value, self.error
        self.value = self.error = None
        return taken

    def timed_out(self) -> ImageTimeoutError:
        """Return the error for an image that is late."""
        phase = "admission" if self.job is None else self.job.phase
        assert self.request.timeout is not None
        return ImageTimeoutError(self.asked.name, self.request.timeout, phase)


def nbytes_of(value: Any) -> int:
    """Return the bytes of a value: arrays, tensors, images of Pillow, texts, and all else with what is in it.

    Of an object whose own code fails it is more than any cache keeps.
    """
    seen: dict[int, Any] = {}
    left = [value]
    nbytes = 0
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, _NOT_ITS_OWN):
            seen[id(each)] = each
            try:
                own, parts = _parts(each)
            except Exception:
                return sys.maxsize
            nbytes += own
            left += parts
    return nbytes


def _parts(value: Any) -> tuple[int, Iterable[Any]]:
    """Return the bytes of a value without those of its parts, and the parts."""
    if isinstance(value, np.ndarray):
        return value.nbytes, value.ravel().tolist() if value.dtype.hasobject else ()
    if type(value) in _WITHOUT_PARTS:
        return sys.getsizeof(value), ()
    if is_pillow_image(value):
        return value.width * value.height * _PIXEL_NBYTES.get(value.mode, 4), ()
    own = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return own, (*value.keys(), *value.values())
    if isinstance(value, _CONTAINERS):
        return own, value
    if dataclasses.is_dataclass(value):
        return own, [getattr(value, each.name) for each in dataclasses.fields(value)]
    given = getattr(value, "nbytes", None)  # of a tensor, or an array of JAX
    if isinstance(given, int):
        return given, ()
    try:
        return own, vars(value).values()
    except TypeError:
        return own, ()
