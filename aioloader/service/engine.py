"""Parts of an image service, chosen by its options: how they are opened, closed and counted."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from aioloader.abc import Program
from aioloader.errors import ServiceClosedError
from aioloader.executors.factory import make_executor
from aioloader.executors.shared_memory import SlabMemory
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.threads import Threads
from aioloader.loader.outputs import make_converter
from aioloader.observability.trace import Tracer
from aioloader.service.dispatcher import Dispatcher
from aioloader.service.making import ImageMaker, ReferenceDecoder, processor_stages
from aioloader.service.probe import decoding
from aioloader.service.references import ReferenceReader
from aioloader.service.requests import ImageRequests
from aioloader.service.stats import ServiceStats, ServiceTrace, percentiles

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aioloader.abc import Executor
    from aioloader.service.options import ServiceOptions


class ServiceEngine:
    """Parts of one image service. What takes memory, files or threads is made by `open`.

    Args:
        options: of the service.

    Raises:
        TypeError, ValueError: an option is wrong.
        MissingPackageError: a package for it is not installed.

    Attributes:
        reader: reads references.
        cache: keeps made images.
        executor, dispatcher, requests: None until they are opened.
    """

    def __init__(self, options: ServiceOptions) -> None:
        given: Any = options.processor
        self._options = options
        self.reader = ReferenceReader(
            allow=options.allow,
            root=options.root,
            hosts=options.hosts,
            fetch=options.fetch,
            user_agent=options.user_agent,
            max_bytes=options.max_bytes,
            timeout=options.longest_s,
            cache=options.url_cache,
            cache_limit=options.url_cache_limit,
        )
        self._own = decoding(given)
        if self._own is not None and options.exif not in (None, self._own.exif):
            self._own = copy.copy(self._own)
            self._own.exif = options.exif
        self._exif = options.exif or ("apply" if self._own is None else self._own.exif)
        self._stages = processor_stages(options.processor)
        self._convert = make_converter(options.output)
        self._tracer = None if options.trace is None else Tracer(options.trace, process="image service")
        self._memory: SlabMemory | None = None
        self._threads: Threads | None = None
        self._maker: ImageMaker | None = None
        # In tuples, because an image may be None. Arrays are in slab memory; small ones in separate memory. What is
        # dropped stays valid where a caller holds it.
        self.cache: LRUCache[Hashable, tuple[Any]] = LRUCache(options.cache_limit)
        self.executor: Executor | None = None
        self.dispatcher: Dispatcher | None = None
        self.requests: ImageRequests | None = None

    def open(self) -> None:
        """Open all parts; blocks. After an error `close` is called too.

        Raises:
            ValueError: the executor belongs to another loader or service.
            OSError: there is no memory for images, or the file of the trace cannot be opened.
            Exception: of the executor.
        """
        options = self._options
        self._threads = Threads(2, "aioloader-copy")
        executor = make_executor(options.executor, options.workers, options.longest_s, owner=self)
        self._memory = memory = SlabMemory(options.memory_limit, shared=executor.shares_memory)
        if self._tracer is not None:
            self._tracer.open()
        self._open_executor(executor, memory)
        self.executor = executor
        self._maker = ImageMaker(
            executor,
            memory,
            options,
            exif=self._exif,
            cache=self.cache,
            threads=self._threads,
        )
        self.dispatcher = Dispatcher(
            self.reader,
            self.cache,
            self._maker,
            options,
            None if self._tracer is None else ServiceTrace(self._tracer, memory.usage),
        )
        self.requests = ImageRequests(
            self.dispatcher,
            self.reader,
            self._threads,
            options,
            exif=self._exif,
            convert=self._convert,
        )

    def _open_executor(self, executor: Executor, memory: SlabMemory) -> None:
        options = self._options
        foreign = not all(stage.native for stage in self._stages)
        program = Program(
            decoder=ReferenceDecoder(1, self._exif, options.max_pixels, own=self._own),
            stages=self._stages,
            seed_globals=foreign and options.executor in ("process", "fork"),
            foreign=foreign,
            traced=self._tracer is not None,
        )
        executor.open(program, memory)

    def close(self) -> None:
        """End the workers and release the memory; blocks, for seconds at most. May be called twice."""
        memory = self._memory
        if memory is None:  # nothing is open
            return
        self.cache.clear()
        if self.executor is not None:
            self.executor.close()
        if self._threads is not None:
            self._threads.close()
        if self._tracer is not None:
            self._tracer.close()
        self._memory = None
        memory.close()

    def stats(self) -> ServiceStats:
        """Return the counters at this moment. Any thread may call it.

        Raises:
            ServiceClosedError: it was never open.
        """
        dispatcher, executor, maker, cache = self.dispatcher, self.executor, self._maker, self.cache
        if dispatcher is None or executor is None or maker is None:
            raise ServiceClosedError("the image service was never open: use it inside 'async with service:'")
        counters, memory = dispatcher.counters, self._memory
        used, peak, limit = (0, 0, 0) if memory is None else memory.usage()
        return ServiceStats(
            executor=executor.kind,
            workers=executor.workers,
            ready=executor.ready,
            restarts=executor.restarts,
            pending=dispatcher.pending,
            reading=counters.reading,
            queued=dispatcher.queued,
            in_work=counters.in_work,
            admitted=dispatcher.admitted,
            waiting_for_admission=counters.admission,
            made=counters.made,
            failed=counters.failed,
            abandoned=counters.abandoned,
            timed_out=counters.timed_out,
            joined=counters.joined,
            cache_hits=cache.hits,
            cache_misses=cache.misses,
            cached=len(cache),
            cache_nbytes=cache.size,
            held_nbytes=dispatcher.held_nbytes,
            memory_used=used,
            memory_peak=peak,
            memory_limit=limit,
            memory_wait_s=maker.memory_wait_s,
            copies=maker.copies,
            read_s=percentiles(counters.read_s),
            queue_s=percentiles(counters.queue_s),
            work_s=percentiles(counters.work_s),
        )
