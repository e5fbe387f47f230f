"""The WriteResult's way to the driver, options, and gathering."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.write.files.result import WriteResult
from streamlake.write.rows.gather import gather
from streamlake.write.target.options import WriteOptions
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


def test_options_of_delete_files() -> None:
    """What `write.delete.*` leaves open is as for data files."""
    given = {
        "write.format.default": "orc",
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "7",
        "write.parquet.page-row-limit": "77",
        "write.avro.compression-codec": "zstd",
        "write.avro.compression-level": "5",
        "write.orc.compression-codec": "snappy",
    }
    delete = WriteOptions.from_properties(given).delete
    assert (delete.file_format, delete.granularity, delete.target_file_size_bytes) == (
        "orc",
        "file",
        64 << 20,
    )
    assert delete.format == WriteOptions.from_properties(given).format
    given |= {
        "write.delete.format.default": "Parquet",
        "write.delete.target-file-size-bytes": "1000",
        "write.delete.granularity": "PARTITION",
        "write.delete.parquet.compression-codec": "snappy",
        "write.delete.parquet.page-size-bytes": "4096",
        "write.delete.avro.compression-codec": "snappy",
        "write.delete.orc.stripe-size-bytes": "1048576",
    }
    options = WriteOptions.from_properties(given)
    delete = options.delete
    assert (delete.file_format, delete.granularity, delete.target_file_size_bytes) == (
        "parquet",
        "partition",
        1000,
    )
    assert (delete.format.parquet_codec, delete.format.parquet_compression_level) == ("snappy", None)
    assert (delete.format.parquet_page_row_limit, delete.format.parquet_page_size_bytes) == (77, 4096)
    assert (delete.format.avro_compression.codec, delete.format.avro_compression.level) == ("snappy", None)
    assert (delete.format.orc_codec, delete.format.orc_stripe_size_bytes) == ("snappy", 1 << 20)
    assert (options.file_format, options.format.parquet_codec) == ("orc", "gzip")
    level = {**given, "write.delete.parquet.compression-codec": "gzip"}
    assert WriteOptions.from_properties(level).delete.format.parquet_compression_level == 7
    level["write.delete.parquet.compression-level"] = "null"
    assert WriteOptions.from_properties(level).delete.format.parquet_compression_level is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("write.format.default", "csv", "'csv' is not a file format; use parquet"),
        (
            "write.delete.format.default",
            "puffin",
            "write.delete.format.default='puffin' is not a file format",
        ),
        ("write.delete.target-file-size-bytes", "0", "at least 1"),
        (
            "write.delete.granularity",
            "row",
            "write.delete.granularity='row' is not known; use file or partition",
        ),
        ("write.delete.parquet.compression-codec", "zip", "write.delete.parquet.compression-codec='zip'"),
        ("write.delete.avro.compression-level", "10", "write.delete.avro.compression-level=10 is above 9"),
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
