"""Results and exceptions as workers in other processes and on other machines send them."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from aioloader.errors import WorkerError
from aioloader.foundation.error_log import (
    TRACEBACK,
    add_note,
    describe,
    detach,
    is_printable,
    printable,
    remove_note,
    set_args,
    traceback_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioloader.foundation.types import ChunkResult


class _WithoutInit:
    """Exception that is unpickled without its ``__init__``, whose arguments may differ from ``args``."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self._error), self._error.args, self._error.__dict__)


def _restore(cls: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    set_args(error, args)
    error.__dict__.update(facts)
    return error


def portable_error(error: BaseException) -> bytes:
    """Return a pickled exception with its traceback as a note; a `WorkerError` where it cannot be pickled."""
    error = printable(error)
    if error.__cause__ is None and error.__context__ is None:
        # Without the exception's text, so that errors of the same place have the same note.
        lines = [TRACEBACK, *traceback.format_tb(traceback_of(error))]
    else:
        lines = traceback.format_exception(error)  # chained exceptions are not sent
    note = f"in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
    add_note(error, note)
    try:
        for portable in (error, _WithoutInit(error)):
            try:
                blob: bytes = cloudpickle.dumps(portable)
                loaded = pickle.loads(blob)
            except BaseException:  # its class may do anything
                continue
            if isinstance(loaded, BaseException) and is_printable(loaded):
                return blob
    finally:
        # The same object may be raised again.
        remove_note(error, note)
        detach(error)
    replacement = WorkerError(f"{describe(error)} (the exception itself cannot be pickled)")
    replacement.add_note(note)
    blob = cloudpickle.dumps(replacement)
    return blob


def read_error(blob: bytes) -> BaseException:
    """Return the exception that `portable_error` sent; a `WorkerError` where it cannot be read."""
    try:
        error: BaseException = pickle.loads(blob)
    except (Exception, SystemExit) as cause:
        error = WorkerError(f"a worker's exception cannot be read: {describe(cause)}")
    return printable(error)


def pack_result(result: ChunkResult, pack: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return a result as it is sent: (rows written, failures, packed values or None, counters).

    Args:
        result: of a chunk.
        pack: pickles (values, objects, batch).

    Raises:
        WorkerError: the batch cannot be pickled.
    """
    failures = [(row, stage, portable_error(error)) for row, stage, error in result.failures]
    packed = None
    if result.values or result.objects or result.batch is not None:
        try:
            packed = pack((result.values, result.objects, result.batch))
        except Exception as error:
            # One sample that cannot be pickled must not fail the others.
            bad = pickling_errors(result.values)
            failures += [(row, "collate", portable_error(cause)) for row, cause in bad.items()]
            result.values = {row: value for row, value in result.values.items() if row not in bad}
            if not bad:
                raise WorkerError(
                    f"a result cannot be sent back from a worker process: {error}; "
                    "use executor='thread', or return arrays and plain values"
                ) from error
            packed = pack((result.values, result.objects, result.batch))
    written = np.asarray(result.written, dtype=np.int32).tobytes()
    return written, failures, packed, result.counters


def pickling_errors(values: Mapping[int, Any]) -> dict[int, Exception]:
    """Return the reason for each value that cannot be pickled, by its key."""
    errors: dict[int, Exception] = {}
    for key, value in values.items():
        try:
            cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            errors[key] = error
    return errors
