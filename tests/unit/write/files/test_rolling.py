"""Rolling: target sizes, one open file at a time, nothing lost; with a content that only counts, and with Parquet."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.write.files.rolling import RollingWriter
from tests.unit.write.targets import make_target, read, read_all, write


class CountedContent:
    """A delete file, say: 10 bytes per row, of which only flushed ones are certain."""

    def __init__(self, log: list[str], bytes_per_row: int = 10) -> None:
        self.log = log
        self.bytes_per_row = bytes_per_row
        self.path = f"file-{len(log)}"
        self.record_count = 0
        self.flushed_rows = 0
        log.append("open")

    @property
    def bytes_written(self) -> int:
        return self.record_count * self.bytes_per_row

    @property
    def buffered_bytes(self) -> int:
        return (self.record_count - self.flushed_rows) * self.bytes_per_row

    def write(self, rows: pa.Table) -> None:
        self.record_count += rows.num_rows

    def flush(self) -> None:
        self.flushed_rows = self.record_count

    def close(self) -> DataFile:
        self.log.append(f"close {self.record_count}")
        return DataFile(
            FileContent.POSITION_DELETES, "x", "parquet", 0, (), self.record_count, self.bytes_written
        )

    def abort(self) -> None:
        self.log.append("abort")


ROWS = pa.table({"id": range(10_000)})


def test_any_content_rolls_at_the_target() -> None:
    log: list[str] = []
    writer = RollingWriter(lambda: CountedContent(log), target_bytes=40_000)
    writer.write(ROWS)
    writer.write(ROWS)
    files = writer.close()
    assert sum(file.record_count for file in files) == 20_000
    assert all(39_000 <= file.file_size_in_bytes <= 50_000 for file in files[:-1])
    assert log.count("open") == len(files)
    assert log[::2] == ["open"] * len(files), "a file is closed before the next is opened"


def test_no_rows_open_no_file_and_rolling_twice_is_harmless() -> None:
    log: list[str] = []
    writer = RollingWriter(lambda: CountedContent(log), target_bytes=1)
    writer.write(ROWS.slice(0, 0))
    writer.roll()
    writer.flush()
    writer.abort()
    assert writer.close() == ()
    assert log == []


def test_abort_gives_up_the_open_file_only() -> None:
    log: list[str] = []
    writer = RollingWriter(lambda: CountedContent(log), target_bytes=1_000_000)
    writer.write(ROWS)
    assert writer.is_open
    writer.abort()
    assert not writer.is_open
    assert log == ["open", "abort"]


def test_a_target_smaller_than_a_row_still_makes_progress() -> None:
    log: list[str] = []
    writer = RollingWriter(lambda: CountedContent(log), target_bytes=1)
    writer.write(ROWS)
    assert sum(file.record_count for file in writer.close()) == 10_000


@pytest.mark.parametrize("partition_by", [(), ("category",)])
def test_parquet_files_come_near_the_target_size(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    rng = random.Random(1)
    rows = pa.table(
        {
            "id": [rng.getrandbits(62) for _ in range(120_000)],
            "category": [f"c{at % 2}" for at in range(120_000)],
            "amount": [rng.random() for _ in range(120_000)],
            "ts": pa.array([rng.getrandbits(50) for _ in range(120_000)], pa.int64()).cast(
                pa.timestamp("us")
            ),
        }
    )
    target_bytes = 400_000
    target = make_target(
        tmp_path, partition_by=partition_by, properties={"write.target-file-size-bytes": str(target_bytes)}
    )
    result = write(target, rows, batch_rows=10_000)
    sizes = [file.file_size_in_bytes for file in result.data_files]
    assert len(sizes) >= 5
    assert max(sizes) < 1.1 * target_bytes
    small = [size for size in sizes if size < 0.9 * target_bytes]
    assert len(small) <= (2 if partition_by else 1), "only the last file of a partition is small"
    assert sorted(read_all(result.data_files)["id"].to_pylist()) == sorted(rows["id"].to_pylist())
    counts = [int(Path(file.file_path).stem.rpartition("-")[2]) for file in result.data_files]
    assert sorted(counts) == list(range(1, len(sizes) + 1))


def test_order_is_kept_over_files(tmp_path: Path) -> None:
    rng = random.Random(2)
    rows = [{"id": at, "category": None, "amount": rng.random(), "ts": None} for at in range(20_000)]
    target = make_target(tmp_path, properties={"write.target-file-size-bytes": "50000"})
    result = write(target, rows, batch_rows=3_000)
    assert len(result.data_files) > 1
    assert [row for file in result.data_files for row in read(file)["id"].to_pylist()] == list(range(20_000))
