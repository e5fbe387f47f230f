"""Changes that leave values out: where the values come from, and what becomes of those that are nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.errors import DecodeError, InvalidOptionError, SchemaMismatchError
from streamlake.formats.arrow.missing_fields import (
    as_missing_fields_type,
    common_missing_fields_type,
    missing_field_masks,
    missing_fields_column,
)
from streamlake.records import MISSING_FIELDS, PLACE, PLACE_TYPE, ROW_KIND, RowKind
from streamlake.write.rows.change_batches import gather_changes
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts

OUT = "(left out)"
C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
Row = tuple[int, Any, Any, RowKind]


def changes(*rows: Row, at: int = 0, versions: list[int] | None = None) -> pa.Table:
    """Changes (id, a, b, kind) from the offsets `at` on of partition 3 of the topic t."""
    columns: dict[str, Any] = {"id": pa.array([row[0] for row in rows], pa.int64())}
    masks = {}
    for place, name in ((1, "a"), (2, "b")):
        masks[name] = np.array([row[place] == OUT for row in rows])
        columns[name] = pa.array([None if row[place] == OUT else row[place] for row in rows], pa.string())
    if versions is not None:
        columns["version"] = pa.array(versions, pa.int64())
    columns[ROW_KIND] = pa.array([int(row[3]) for row in rows], pa.int8())
    table = pa.table(columns)
    if any(mask.any() for mask in masks.values()):
        places = [{"topic": "t", "partition": 3, "offset": at + n} for n in range(len(rows))]
        table = table.append_column(MISSING_FIELDS, missing_fields_column(masks, len(rows)))
        table = table.append_column(PLACE, pa.array(places, PLACE_TYPE))
    return table


def upserts(home: Path, ddl: str = "id long, a string, b string", **options: Any) -> LocalUpserts:
    properties = options.pop("properties", {})
    location = str(home / "table")
    create_table(location, ddl, format_version=3, properties=properties)
    return LocalUpserts(location, key=["id"], **options)


def rows(stream: LocalUpserts) -> dict[int, tuple[Any, Any]]:
    found = load_table(stream.location).scan().to_arrow().to_pylist()
    check_table(stream.table)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["a"], row["b"]) for row in found}


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_values_come_from_the_row_that_is_replaced(
    tmp_path: Path, file_format: str, delete_mode: str, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlake.write.upsert.upsert_task._CHUNK_ROWS", batch_rows)
    properties = {"write.format.default": file_format}
    stream = upserts(tmp_path, delete_mode=delete_mode, batch_rows=batch_rows, properties=properties)
    stream.checkpoint(changes(*((n, f"a{n}", f"b{n}", C) for n in range(9))))
    receipt = stream.checkpoint(
        changes(
            (1, OUT, "B1", U),
            (2, "A2", OUT, U),
            (2, OUT, "B2", U),
            (3, OUT, OUT, U),
            (9, "a9", "b9", C),
            (9, "A9", OUT, U),
            (4, "A4", "B4", U),
            (4, None, OUT, U),
            (5, None, None, D),
        )
    )
    expected = {n: (f"a{n}", f"b{n}") for n in (0, 3, 6, 7, 8)}
    expected.update({1: ("a1", "B1"), 2: ("A2", "B2"), 9: ("A9", "b9"), 4: (None, "B4")})
    assert rows(stream) == expected
    assert receipt is not None
    assert receipt.counters["filled"] == (6 if batch_rows == 1 else 5)
    stream.restart()
    stream.checkpoint(changes((9, OUT, "B9", U), (8, OUT, "B8", U)))
    assert rows(stream) == {**expected, 9: ("A9", "B9"), 8: ("a8", "B8")}


def test_a_late_change_gives_no_value(tmp_path: Path) -> None:
    stream = upserts(tmp_path, "id long, a string, b string, version long", sequence_by=["version"])
    stream.checkpoint(changes((1, "a", "b", C), (2, "a", "b", C), versions=[5, 5]))
    stream.checkpoint(
        changes(
            (1, OUT, "new", U),
            (1, "late", "late", U),
            (2, OUT, "new", U),
            (2, None, None, D),
            (2, "older", "older", U),
            versions=[9, 3, 9, 4, 7],
        )
    )
    assert rows(stream) == {1: ("a", "new"), 2: ("older", "new")}


NOWHERE = changes((2, "a", "b", C), (1, None, None, D), (1, OUT, "b", C), (3, OUT, "b", U), at=40)


def test_a_value_that_is_nowhere_ends_the_stream(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes((1, "a", "b", C)))
    with pytest.raises(
        DecodeError,
        match=r"t-3 offset 4[23]: .*table: column 'a' has no value.*streamlake.upsert.unset-values",
    ):
        stream.checkpoint(NOWHERE)
    assert rows(stream) == {1: ("a", "b")}


def test_a_value_that_is_nowhere_is_null(tmp_path: Path) -> None:
    stream = upserts(tmp_path, properties={"streamlake.upsert.unset-values": "null"})
    stream.checkpoint(changes((1, "a", "b", C)))
    stream.checkpoint(NOWHERE)
    assert rows(stream) == {1: (None, "b"), 2: ("a", "b"), 3: (None, "b")}


def test_no_null_where_the_table_requires_a_value(tmp_path: Path) -> None:
    properties = {"streamlake.upsert.unset-values": "null"}
    stream = upserts(tmp_path, "id long, a string not null, b string", properties=properties)
    stream.checkpoint(changes((1, "a", "b", C)))
    stream.checkpoint(changes((1, OUT, "B", U)))
    assert rows(stream) == {1: ("a", "B")}
    with pytest.raises(SchemaMismatchError, match=r"column 'a' has no value.*requires a value"):
        stream.checkpoint(changes((3, OUT, "b", U)))
    with pytest.raises(SchemaMismatchError, match=r"column 'a', row 1: the value is null"):
        stream.checkpoint(changes((1, OUT, "b", U), (1, None, "b", U)))


def test_a_change_without_a_value_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = upserts(tmp_path, tasks=1, properties={"streamlake.upsert.unset-values": "reject"})
    stream.checkpoint(changes((1, "a", "b", C)))
    staged = stream.stage(NOWHERE)
    assert staged is not None
    refused = [(each.topic, each.partition, each.offset) for each in staged[1][0].refused]
    assert sorted(refused) == [("t", 3, 42), ("t", 3, 43)]
    assert all("column 'a' has no value" in each.reason for each in staged[1][0].refused)
    assert "2 changes are not carried out" in caplog.text
    assert "t-3 offset 43" in caplog.text
    receipt = stream.run.commit(*staged)
    assert (receipt.counters["refused"], receipt.counters["deletes"]) == (2, 0)
    assert rows(stream) == {2: ("a", "b")}, "the delete before the refused change stands"


@pytest.mark.parametrize(
    "options", [{"delete_mode": "equality"}, {"mode": "changelog"}, {"mode": "changelog", "tasks": 1}]
)
def test_modes_without_older_rows_refuse(tmp_path: Path, options: dict[str, Any]) -> None:
    stream = upserts(tmp_path, **options)
    stream.checkpoint(changes((1, "a", "b", C)))
    with pytest.raises(InvalidOptionError, match=r"leaves out the value of column 'a'.*Use mode 'upsert'"):
        stream.checkpoint(changes((1, OUT, "B", U)))


def test_keys_are_never_left_out(tmp_path: Path) -> None:
    create_table(str(tmp_path / "table"), "id long, a string, b string")
    stream = LocalUpserts(str(tmp_path / "table"), key=["a"])
    with pytest.raises(SchemaMismatchError, match=r"t-3 offset 7: .*column 'a' has no value.*key"):
        stream.checkpoint(changes((1, OUT, "B", U), at=7))


def test_columns_of_older_files_are_found_by_their_id(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    location = stream.location
    stream.checkpoint(changes((1, "a1", "b1", C), (2, "a2", "b2", C)))
    foreign_writers.evolve(location, ("truncate(1, b)",))
    stream.restart()
    stream.checkpoint(changes((1, OUT, "c1", U), (3, "a3", "b3", C)))
    stream.checkpoint(changes((1, "A1", OUT, U), (3, OUT, "B3", U), (2, "A2", OUT, U)))
    assert rows(stream) == {1: ("A1", "c1"), 2: ("A2", "b2"), 3: ("a3", "B3")}


def test_batches_with_and_without_marks_come_together() -> None:
    first = changes((1, OUT, "b", U), (2, "a", "b", U))
    other = changes((3, "a", OUT, U))
    plain = changes((4, "a", "b", U))
    batches = [each.to_batches()[0] for each in (plain, first, other, plain)]
    (table,) = gather_changes(batches, 1 << 20, 100)
    masks = missing_field_masks(table.column(MISSING_FIELDS))
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "a": [False, True, False, False, False],
        "b": [False, False, False, True, False],
    }
    assert table.column("id").to_pylist() == [4, 1, 2, 3, 4]
    assert [place is None for place in table.column(PLACE).to_pylist()] == [True, False, False, False, True]
    assert MISSING_FIELDS not in next(gather_changes([batches[0]] * 2, 1 << 20, 100)).column_names
    assert [part.num_rows for part in gather_changes(batches, 1 << 20, 2)] == [1, 2, 2]


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_masks_survive_the_column(rows: int) -> None:
    source = np.random.default_rng(rows)
    masks = {f"c{n}": source.random(rows) < 0.3 for n in range(5)}
    column = missing_fields_column(masks, rows)
    typed = as_missing_fields_type(
        column, common_missing_fields_type([column.type, pa.struct([("d", pa.bool_())])])
    )
    for each in (column, typed, pa.chunked_array([column.slice(0, 1), column.slice(1)])):
        found = missing_field_masks(each)
        assert found.keys() == {name for name, mask in masks.items() if mask.any()}
        assert all((found[name] == masks[name]).all() for name in found)
