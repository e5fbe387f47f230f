"""Position delete files: any order, any format, any number of paths, and damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.errors import DataInvalidError, MissingFileError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.data_files import open_data_writer
from streamlake.formats.deletes import position_deletes
from streamlake.formats.deletes.position_deletes import (
    POSITION_DELETES,
    merged_positions,
    read_position_deletes,
)
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.storage.local import LocalFileIO

IO = LocalFileIO()


def written(path: Path, rows: list[tuple[str, int]], file_format: str = "parquet") -> DataFile:
    writer = open_data_writer(file_format, IO, str(path), POSITION_DELETES)
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in ((0, pa.string()), (1, pa.int64()))]
    writer.write(pa.Table.from_arrays(columns, schema=schema_to_arrow(POSITION_DELETES)))
    metrics = writer.close()
    return described(path, metrics.record_count, file_format)


def described(path: Path, records: int, file_format: str = "parquet") -> DataFile:
    return DataFile(FileContent.POSITION_DELETES, str(path), file_format, 0, (), records, path.stat().st_size)


def model(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    return {
        path: sorted({pos for name, pos in rows if name == path})
        for path in dict.fromkeys(p for p, _ in rows)
    }


def as_lists(found: dict[str, np.ndarray]) -> dict[str, list[int]]:
    assert all(positions.dtype == np.int64 for positions in found.values())
    return {path: positions.tolist() for path, positions in found.items()}


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
@pytest.mark.parametrize("ordered", [True, False])
def test_positions_by_path(
    tmp_path: Path, file_format: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_deletes, "_BATCH_ROWS", 100)
    rows = [(f"/t/data/{at % 7}.parquet", (at * 31) % 1000 + (at % 2) * 2**33) for at in range(777)]
    rows += rows[:50]
    file = written(tmp_path / f"d.{file_format}", sorted(rows) if ordered else rows, file_format)
    assert as_lists(read_position_deletes(IO, file)) == model(rows)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 50)), min_size=1, max_size=300))
def test_any_rows(tmp_path: Path, rows: list[tuple[str, int]]) -> None:
    file = written(tmp_path / "d.parquet", rows)
    assert as_lists(read_position_deletes(IO, file)) == model(rows)


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Plain paths, a deleted row beside them, columns in another order; and a file without field ids."""
    path = tmp_path / "d.parquet"
    schema = schema_to_arrow(POSITION_DELETES)
    rows = pa.table({"pos": [3, 5], "row": [{"id": 1}, {"id": 2}], "file_path": ["a", "b"]})
    fields = [schema.field("pos"), pa.field("row", rows["row"].type), schema.field("file_path")]
    pq.write_table(rows.cast(pa.schema(fields)), path, use_dictionary=False)
    assert as_lists(read_position_deletes(IO, described(path, 2))) == {"a": [3], "b": [5]}
    pq.write_table(rows.select(["file_path", "pos"]), path)
    assert as_lists(read_position_deletes(IO, described(path, 2))) == {"a": [3], "b": [5]}


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    file = written(path, [("a", 1), ("a", 2)])
    with pytest.raises(DataInvalidError, match=r"d\.parquet.*2 position deletes, the manifest says 3"):
        read_position_deletes(IO, replace(file, record_count=3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(DataInvalidError, match=r"d\.parquet"):
        read_position_deletes(IO, file)
    pq.write_table(pa.table({"file_path": ["a", None], "pos": [1, 2]}), path)
    with pytest.raises(DataInvalidError, match="nulls"):
        read_position_deletes(IO, described(path, 2))
    pq.write_table(pa.table({"file_path": ["a"], "position": [1]}), path)
    with pytest.raises(DataInvalidError, match="without the column pos"):
        read_position_deletes(IO, described(path, 1))
    path.unlink()
    with pytest.raises(MissingFileError):
        read_position_deletes(IO, file)


def test_merged_positions() -> None:
    one = np.array([1, 5, 9])
    assert merged_positions([]).tolist() == []
    assert merged_positions([one]) is one
    assert merged_positions([one, np.array([10, 11])]).tolist() == [1, 5, 9, 10, 11]
    assert merged_positions([one, np.array([5, 2]), one]).tolist() == [1, 2, 5, 9]
