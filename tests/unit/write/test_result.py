"""The WriteResult's way to the driver, options, and gathering."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.write.gather import gather
from streamlake.write.options import WriteOptions
from streamlake.write.result import WriteResult
from tests.unit.write.targets import make_target, write


def test_a_result_survives_the_way(tmp_path: Path) -> None:
    rows = [{"id": at, "category": f"c{at % 4}", "amount": 0.5, "ts": None} for at in range(100)]
    result = write(make_target(tmp_path, partition_by=["category"]), rows)
    assert WriteResult.from_bytes(result.to_bytes()) == result
    empty = WriteResult("job", 1, 2, 0)
    assert WriteResult.from_bytes(empty.to_bytes()) == empty


def test_results_of_many_files_are_small() -> None:
    bounds = dict.fromkeys(range(1, 8), b"12345678")
    files = tuple(
        DataFile(
            FileContent.DATA, f"/warehouse/db/table/data/id_bucket={at}/00000-1-uuid-{at:05d}.parquet", "parquet", 0,
            (at,), at, at * 100, bounds, bounds, bounds, bounds, bounds, bounds,
        )
        for at in range(1000)
    )  # fmt: skip
    assert len(WriteResult("job", 1, 2, 0, files).to_bytes()) < 150 * len(files)


def test_foreign_bytes_are_refused() -> None:
    with pytest.raises(DataInvalidError, match="another version"):
        WriteResult.from_bytes(b"PAR1")
    with pytest.raises(DataInvalidError, match="damaged"):
        WriteResult.from_bytes(WriteResult("job", 1, 2, 0).to_bytes()[:-5])


def test_options_of_a_table() -> None:
    options = WriteOptions.from_properties(
        {
            "write.format.default": "AVRO",
            "write.target-file-size-bytes": "1000",
            "streamlake.write.memory-budget-bytes": "16777216",
            "owner": "somebody",
        }
    )
    assert (options.file_format, options.target_file_size_bytes) == ("avro", 1000)
    assert options.gather_bytes * 2 + options.buffer_bytes == options.memory_budget_bytes == 1 << 24
    assert WriteOptions.from_properties({}) == WriteOptions()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("write.format.default", "csv", "'csv' is not a file format; use parquet"),
        ("write.target-file-size-bytes", "512MB", "'512MB' is not an integer"),
        ("streamlake.write.memory-budget-bytes", "1000", "at least 1048576"),
        ("streamlake.write.max-open-files", "0", "at least 1"),
        ("streamlake.write.memory-budget", "1", "did you mean 'streamlake.write.memory-budget-bytes'"),
    ],
)
def test_options_that_make_no_sense(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        WriteOptions.from_properties({key: value})


def batch(rows: int, name: str = "x") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(range(rows))})


def sizes(batches: list[pa.RecordBatch], max_bytes: int = 1 << 30, max_rows: int = 1000) -> list[int]:
    return [table.num_rows for table in gather(batches, max_bytes, max_rows)]


def test_gathering() -> None:
    assert sizes([]) == []
    assert sizes([batch(0), batch(0)]) == []
    assert sizes([batch(300)] * 7) == [900, 900, 300]
    assert sizes([batch(300)] * 3, max_bytes=5000) == [600, 300]
    assert sizes([batch(5000), batch(1)]) == [5000, 1]
    assert sizes([batch(1), batch(2, "y"), batch(3, "y"), batch(4)]) == [1, 5, 4]
