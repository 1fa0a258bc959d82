"""File of ten records with an index, its damage and the expected results."""

from recordio import (
    RecordReader,
    RecordWriter,
    repair,
    testing,
    verify,
)

RECORDS = [bytes([65 + n]) * (50 + 7 * n) for n in range(10)]
KEYS = [n * 10 for n in range(10)]
OFFSETS = [len(testing.frame(RECORDS[:n])) for n in range(11)]


def write_ten_records(path):
    """Write the file and its index; return the path."""
    with RecordWriter(path, index=True) as writer:
        for key, record in zip(KEYS, RECORDS, strict=True):
            writer.write(record, key)
    return path


def spoil(path, data):
    path.write_bytes(data)
    return data


def check_repair(path, kept):
    """Check that the copy holds exactly these records, under their old keys, and that the source is unchanged."""
    before = path.read_bytes(), path.with_suffix(".idx").read_bytes()
    copy = path.parent / "copy.rec"
    report = repair(path, copy)
    assert (path.read_bytes(), path.with_suffix(".idx").read_bytes()) == before
    assert report.records == len(kept)
    assert report.keyless.tolist() == []
    with RecordReader(copy, copy.with_suffix(".idx")) as reader:
        assert list(reader) == [RECORDS[n] for n in kept]
        assert list(reader.keys) == [KEYS[n] for n in kept]
    assert verify(copy).ok
    assert sorted(key for problem in report.problems for key in problem.keys) == [
        key for n, key in enumerate(KEYS) if n not in kept
    ]


def rewrite(rec, text):
    rec.with_suffix(".idx").write_text(text)


def lines_of(rec):
    return rec.with_suffix(".idx").read_text().splitlines(keepends=True)
