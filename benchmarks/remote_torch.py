"""PyTorch's DataLoader over a URL, with one blocking range read for each sample; started by `benchmarks.remote`.

    python benchmarks/remote_torch.py HOST:PORT /path.rec SPANS.npy WORKERS BATCH [--images]

Runs in an environment with torch and numpy (with --images opencv too); nothing of this project is imported. SPANS.npy
holds offset and length of every sample, in the order of the reads. Each worker keeps its connection. Prints
samples/s, from the first batch to the last: the start of the workers is not counted; and the CPU seconds a sample of
the whole epoch.
"""

from __future__ import annotations

import http.client
import resource
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

HEAD = 8 + 24  # sizes of a record's head and of its image header


class Remote(Dataset):  # type: ignore[type-arg]
    """Dataset of records, read by range requests."""

    def __init__(self, address: str, path: str, spans: Any, images: bool) -> None:
        self.address, self.path, self.spans, self.images = address, path, spans, images
        self.connection: Any = None

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: int) -> Any:
        offset, length = self.spans[index].tolist()
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address)
        self.connection.request("GET", self.path, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
        reply = self.connection.getresponse()
        data = reply.read()
        if reply.status != 206 or len(data) != length:
            raise OSError(f"status {reply.status}, {len(data)} bytes")
        return self._crop(data) if self.images else len(data)

    def _crop(self, data: bytes) -> Any:
        import cv2

        image = cv2.imdecode(np.frombuffer(data, np.uint8, offset=HEAD), cv2.IMREAD_COLOR)
        return cv2.resize(image, (224, 224))


def main() -> None:
    """Read the arguments, run one epoch."""
    address, path, spans, workers, batch = sys.argv[1:6]
    dataset = Remote(address, path, np.load(spans), "--images" in sys.argv)
    loader = DataLoader(dataset, int(batch), num_workers=int(workers), collate_fn=list)
    begin, first, count = 0.0, 0, 0
    used = process_time()
    for samples in loader:
        count += len(samples)
        if not begin:
            begin, first = perf_counter(), count
    rate = (count - first) / (perf_counter() - begin)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # the workers, which end with the epoch
    print(rate, (process_time() - used + ended.ru_utime + ended.ru_stime) / count)


if __name__ == "__main__":
    main()
