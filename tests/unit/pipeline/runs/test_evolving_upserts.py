"""Upserts go on through changes of the table's schema, in every delete mode: their index is over columns, not over names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.records import ROW_KIND, RowKind
from streamlake.table.schema.update_schema import UpdateSchema
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

MODES = pytest.mark.parametrize(
    ("delete_mode", "version"), [("position", 3), ("position", 2), ("copy-on-write", 2), ("equality", 2)]
)


def changes(kind: RowKind = RowKind.UPDATE_AFTER, **columns: Any) -> pa.Table:
    table = pa.table(columns)
    return table.append_column(ROW_KIND, pa.array([kind] * table.num_rows, pa.int8()))


def found(stream: LocalUpserts) -> dict[Any, Any]:
    table = load_table(stream.location)
    rows = table.scan().to_arrow().to_pylist()
    by_key = {row.pop("id"): row for row in rows}
    assert len(by_key) == len(rows), "a key is there twice"
    check_table(table.table, files_exist=True)
    return by_key


@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_key_gets_wider(tmp_path: Path, delete_mode: str, version: int, restarts: bool) -> None:
    table = make_table(tmp_path, "id int, v string", ("bucket(2, id)",), version)
    stream = LocalUpserts(table.location, key=["id"], delete_mode=delete_mode)
    stream.checkpoint(changes(id=pa.array(range(20), pa.int32()), v=["old"] * 20))
    stream.checkpoint(changes(id=pa.array([1], pa.int32()), v=["older"]))
    UpdateSchema(table).widen("id", "long").add_column("w", "int").commit()
    if restarts:
        stream.restart()
    stream.checkpoint(changes(id=[1, 2, 2**40], v=["new", "new", "new"], w=pa.array([1, 2, 3], pa.int32())))
    stream.checkpoint(
        changes(RowKind.DELETE, id=[3, 2**40], v=[None, None], w=pa.array([None, None], pa.int32()))
    )
    expected = {at: {"v": "old", "w": None} for at in range(20) if at != 3}
    expected |= {1: {"v": "new", "w": 1}, 2: {"v": "new", "w": 2}}
    assert found(stream) == expected


@MODES
def test_a_key_is_renamed_and_the_stream_says_so(tmp_path: Path, delete_mode: str, version: int) -> None:
    table = make_table(tmp_path, "name string, id long", (), version)
    stream = LocalUpserts(table.location, key=["name"], delete_mode=delete_mode)
    stream.checkpoint(changes(name=["a", "b"], id=[1, 2]))
    UpdateSchema(table).rename("name", "key").move_first("id").commit()
    again = LocalUpserts(table.location, key=["key"], delete_mode=delete_mode)
    again.checkpoint_id = 1
    again.checkpoint(changes(key=["b", "c"], id=[3, 4]))
    assert again.run.index_runs == () if delete_mode == "equality" else again.run.index_runs
    assert found(again) == {1: {"key": "a"}, 3: {"key": "b"}, 4: {"key": "c"}}


def test_a_row_that_is_staged_meets_the_schema_of_another(tmp_path: Path) -> None:
    table = make_table(tmp_path, "id long not null, v string not null", (), 3)
    stream = LocalUpserts(table.location, key=["id"])
    stream.checkpoint(changes(id=[1, 2], v=["a", "b"]))

    def evolve(_: object) -> None:
        UpdateSchema(table).add_column("w", "string", required=True, default="none").commit()

    stream.checkpoint(changes(id=[2, 3], v=["c", "d"]), between=evolve)
    assert found(stream) == {at: {"v": v, "w": "none"} for at, v in ((1, "a"), (2, "c"), (3, "d"))}
