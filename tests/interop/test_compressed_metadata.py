"""Which readers find metadata files that are compressed. Java's are in test_java_tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.tables import LoadedTable, create_table
from tests.helpers.batch_write import append
from tests.helpers.readers import ChdbReader, DuckDbReader, PyIcebergReader, Reader

pytestmark = pytest.mark.interop


@pytest.fixture
def table(tmp_path: Path) -> LoadedTable:
    table = create_table(tmp_path / "t", "id long", properties={"write.metadata.compression-codec": "gzip"})
    append(table.table, pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    return table


def test_readers_of_a_file_read_it(table: LoadedTable, tmp_path: Path) -> None:
    assert {path.name[2:] for path in Path(table.location, "metadata").glob("*.json")} == {
        ".gz.metadata.json"
    }
    chdb = ChdbReader(tmp_path)
    readers: list[Reader] = [PyIcebergReader(), DuckDbReader(), chdb]
    try:
        for reader in readers:
            found = reader.read(Path(table.location))["id"].to_pylist()
            assert sorted(found) == [1, 2, 3], reader.name
    finally:
        chdb.close()


def test_some_readers_of_a_directory_do_not_find_it(table: LoadedTable) -> None:
    """The reason why metadata is not compressed unless somebody says so."""
    from pyiceberg.table import StaticTable

    with pytest.raises(FileNotFoundError, match=r"v2\.metadata\.json"):
        StaticTable.from_metadata(table.location)
    reader = DuckDbReader()
    with pytest.raises(Exception, match="using 'none' compression"):
        reader.sql(f"from iceberg_scan('{table.location}')")
    told = f"from iceberg_scan('{table.location}', metadata_compression_codec='gzip')"
    assert DuckDbReader().sql(told).num_rows == 3
