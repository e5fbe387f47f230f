"""Tables upserted by Flink's Iceberg sink: equality deletes, position deletes, deletion vectors. Whoever reads them, the
rows are those of the change stream.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.spec.metadata.data_file import FileContent
from tests.helpers.flink_tables import CASES, FlinkTable
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.readers import DuckDbReader, SparkReader, rows
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Batch
from tests.unit.pipeline.iceberg.table_streams import ChangeStream, values_of


@pytest.fixture(params=[case.name for case in CASES])
def table(request: pytest.FixtureRequest, flink_tables: dict[str, FlinkTable]) -> FlinkTable:
    return flink_tables[request.param]


def test_our_rows_are_the_model(table: FlinkTable) -> None:
    loaded = load_table(str(table.location))
    assert rows(loaded.scan().to_arrow(), table.key) == rows(table.expected(), table.key)
    assert loaded.scan().count() == len(table.model)
    columns = [part.name for part in table.schema.fields if part.name not in table.key]
    assert rows(loaded.scan(columns=columns).to_arrow()) == rows(table.expected().select(columns))


def test_rows_of_a_dataframe(table: FlinkTable) -> None:
    found = Batch(str(table.location), split_size=1, split_file_open_cost=1).collect()
    assert rows(found, table.key) == rows(table.expected(), table.key)


def test_every_kind_of_delete_is_there(table: FlinkTable) -> None:
    ours = open_table(str(table.location))
    check_table(ours, files_exist=True)
    assert diagnose(str(table.location)).violations == ()
    deletes = [entry.data_file for entry in live_entries(ours) if not entry.data_file.is_data]
    assert any(file.content == FileContent.EQUALITY_DELETES for file in deletes)
    by_position = [file for file in deletes if file.content == FileContent.POSITION_DELETES]
    assert by_position
    assert {file.is_deletion_vector for file in by_position} == {table.case.format_version == 3}


@pytest.mark.parametrize("net", [False, True])
def test_a_stream_of_their_changes_gives_the_model(table: FlinkTable, net: bool) -> None:
    stream = ChangeStream(
        load_table(str(table.location)),
        starting_strategy="incremental-from-earliest-snapshot",
        identifier_columns=",".join(table.key),
        net_changes=net,
        max_planning_snapshot_count=2,
    )
    while stream.step() is not None:
        stream.restart()
    assert stream.applied() == Counter(map(values_of, table.expected().to_pylist()))
    kinds = {row["_row_kind"] for row in stream.found()}
    assert kinds == {"+I", "-U", "+U", "-D"}


def test_spark_sees_the_model(table: FlinkTable, spark_reader: SparkReader) -> None:
    assert rows(spark_reader.read(table.location), table.key) == rows(table.expected(), table.key)


def test_duckdb_sees_the_model(table: FlinkTable) -> None:
    # An internal error leaves its connection unusable.
    reader = DuckDbReader()
    try:
        if table.case.shape == "moving":
            # It cannot compare a null partition value.
            with pytest.raises(Exception, match="Comparison on NULL values"):
                reader.read(table.location)
            return
        found = rows(reader.read(table.location), table.key)
    finally:
        reader.connection.close()
    expected = rows(table.expected(), table.key)
    if table.case.shape == "null_keys":
        # An equality delete with a null can take a row out that has another value there.
        assert set(found) <= set(expected)
    else:
        assert found == expected


def test_fork_is_the_same_table(flink_tables: dict[str, FlinkTable], tmp_path: Path) -> None:
    fork = flink_tables["composite_v2"].fork(tmp_path / "fork")
    loaded = load_table(str(fork.location))
    assert loaded.location.endswith("/fork")
    assert rows(loaded.scan().to_arrow(), fork.key) == rows(fork.expected(), fork.key)


def test_after_a_conversion_of_its_deletes(
    table: FlinkTable, spark_reader: SparkReader, tmp_path: Path
) -> None:
    """No equality delete is left, and every reader sees the rows that it saw before."""
    fork = table.fork(tmp_path / "converted")
    expected = rows(fork.expected(), fork.key)
    done = load_table(str(fork.location)).convert_deletes(options={"rewrite-all": True})
    assert done.equality_deletes
    assert done.kept == 0
    ours = open_table(str(fork.location))
    check_table(ours, files_exist=True)
    deletes = [entry.data_file for entry in live_entries(ours) if not entry.data_file.is_data]
    assert deletes
    assert {file.content for file in deletes} == {FileContent.POSITION_DELETES}
    targets = [file.deletes_from for file in deletes]
    assert None not in targets
    assert len(set(targets)) == len(targets)
    assert rows(load_table(str(fork.location)).scan().to_arrow(), fork.key) == expected
    assert rows(spark_reader.read(fork.location), fork.key) == expected
