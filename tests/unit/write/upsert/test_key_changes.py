"""Rows that get another key and leave values out: the values are those under the old key, in whatever task, file and
checkpoint that is."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.errors import DecodeError
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, PLACE, PLACE_TYPE, ROW_KIND, ROW_SEQUENCE, RowKind
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts

OUT = "(left out)"
C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
Row = tuple[Any, ...]


def changes(*rows: Row) -> pa.Table:
    """Changes (place in the log, id, a, b, kind, and for moves the other key)."""
    columns: dict[str, Any] = {"id": pa.array([row[1] for row in rows], pa.int64())}
    masks = {}
    for place, name in ((2, "a"), (3, "b")):
        masks[name] = np.array([row[place] == OUT for row in rows])
        columns[name] = pa.array([None if row[place] == OUT else row[place] for row in rows], pa.string())
    columns[ROW_KIND] = pa.array([int(row[4]) for row in rows], pa.int8())
    columns[ROW_SEQUENCE] = pa.array([row[0] for row in rows], pa.int64())
    table = pa.table(columns)
    if any(mask.any() for mask in masks.values()):
        places = [{"topic": "t", "partition": 0, "offset": row[0]} for row in rows]
        table = table.append_column(MISSING_FIELDS, missing_fields_column(masks, len(rows)))
        table = table.append_column(PLACE, pa.array(places, PLACE_TYPE))
    moved = [{"id": row[5]} if len(row) > 5 else None for row in rows]
    if any(moved):
        table = table.append_column(KEY_CHANGE, pa.array(moved, pa.struct([("id", pa.int32())])))
    return table


def move(lsn: int, old: int, new: int, a: Any = OUT, b: Any = OUT) -> list[Row]:
    return [(lsn, old, None, None, D, new), (lsn, new, a, b, C, old)]


def upserts(home: Path, **options: Any) -> LocalUpserts:
    properties = options.pop("properties", {})
    location = str(home / "table")
    create_table(location, "id long, a string, b string", format_version=3, properties=properties)
    return LocalUpserts(location, key=["id"], **{"tasks": 3, **options})


def rows(stream: LocalUpserts) -> dict[int, tuple[Any, Any]]:
    found = load_table(stream.location).scan().to_arrow().to_pylist()
    check_table(stream.table, files_exist=True)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["a"], row["b"]) for row in found}


@pytest.fixture(params=[((), 1000), ((ROW_SEQUENCE,), 1000), ((ROW_SEQUENCE,), 1)], ids=str)
def stream(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalUpserts:
    """With and without sequence values; all changes at once, and one by one."""
    sequence_by, at_once = request.param
    monkeypatch.setattr("streamlake.write.upsert.upsert_task._CHUNK_ROWS", at_once)
    return upserts(tmp_path, sequence_by=sequence_by, batch_rows=at_once)


def test_the_old_row_is_in_the_table(stream: LocalUpserts) -> None:
    stream.checkpoint(changes(*((n, n, f"a{n}", f"b{n}", C) for n in range(10))))
    stream.checkpoint(changes(*move(20, 1, 11), *move(21, 2, 12, a="A"), (22, 11, OUT, "B", U)))
    expected = {n: (f"a{n}", f"b{n}") for n in (0, *range(3, 10))}
    expected.update({11: ("a1", "B"), 12: ("A", "b2")})
    assert rows(stream) == expected
    stream.restart()
    stream.checkpoint(changes((30, 11, "x", OUT, U), (31, 12, OUT, OUT, U), (32, 3, None, None, D)))
    del expected[3]
    assert rows(stream) == {**expected, 11: ("x", "B")}


def test_the_old_row_is_made_in_the_same_checkpoint(stream: LocalUpserts) -> None:
    stream.checkpoint(changes((1, 5, "a5", "b5", C)))
    made = changes(
        (2, 1, "a1", "b1", C),
        (3, 1, OUT, "B1", U),
        *move(4, 1, 2),
        (5, 5, "A5", OUT, U),
        *move(6, 5, 6),
        *move(7, 6, 7, b="B7"),
        (8, 1, "again", "again", C),
    )
    receipt = stream.checkpoint(made)
    assert rows(stream) == {1: ("again", "again"), 2: ("a1", "B1"), 7: ("A5", "B7")}
    assert receipt is not None


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_partitions_come_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Every partition keeps its own order; the sequence value decides the rest."""
    stream = upserts(tmp_path, sequence_by=[ROW_SEQUENCE])
    stream.checkpoint(changes((1, 1, "a1", "b1", C)))
    parts = [
        [(3, 1, OUT, "B1", U), (4, 1, None, None, D, 2)],
        [(4, 2, OUT, OUT, C, 1), (5, 2, None, None, D, 3)],
        [(5, 3, OUT, OUT, C, 2), (6, 3, OUT, "B3", U)],
        [(2, 9, "a9", "b9", C)],
    ]
    stream.checkpoint(changes(*(row for at in order for row in parts[at])))
    assert rows(stream) == {3: ("a1", "B3"), 9: ("a9", "b9")}


@pytest.mark.parametrize("new_first", [True, False])
@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
def test_the_two_halves_are_in_two_checkpoints(tmp_path: Path, new_first: bool, delete_mode: str) -> None:
    stream = upserts(tmp_path, delete_mode=delete_mode)
    stream.checkpoint(changes((1, 1, "a1", "b1", C), (1, 3, "a3", "b3", C)))
    stream.checkpoint(changes((2, 1, OUT, "B1", U)))
    gone, came = move(3, 1, 2)
    halves = [came, gone] if new_first else [gone, came]
    for half in halves:
        stream.checkpoint(changes(half))
    assert rows(stream) == {2: ("a1", "B1"), 3: ("a3", "b3")}


def test_an_update_and_half_a_move_in_one_checkpoint(stream: LocalUpserts) -> None:
    stream.checkpoint(changes((1, 1, "a1", "b1", C)))
    gone, came = move(3, 1, 2)
    stream.checkpoint(changes((2, 1, OUT, "B1", U), came))
    stream.checkpoint(changes(gone))
    assert rows(stream) == {2: ("a1", "B1")}


def test_the_head_moves_meanwhile(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes((1, 1, "a1", "b1", C), (2, 2, "a2", "b2", C)))
    stream.checkpoint(
        changes(*move(3, 1, 2)),
        between=lambda _: foreign_writers.compact(stream.location, lambda at: True),
    )
    assert rows(stream) == {2: ("a1", "b1")}
    stream.checkpoint(changes((5, 2, OUT, "B", U)))
    assert rows(stream) == {2: ("a1", "B")}


def test_old_rows_that_are_nowhere(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes((1, 5, "a5", "b5", C)))
    with pytest.raises(DecodeError, match=r"t-0 offset 4: .*column 'a' has no value"):
        stream.checkpoint(changes(*move(4, 1, 2), (4, 3, "a", "b", C)))
    assert rows(stream) == {5: ("a5", "b5")}
    UpdateProperties(stream.table.refresh()).set("streamlake.upsert.unset-values", "reject").commit()
    stream.restart()
    receipt = stream.checkpoint(changes(*move(4, 1, 2), *move(5, 5, 6), (6, 3, "a", "b", C)))
    assert rows(stream) == {3: ("a", "b"), 6: ("a5", "b5")}
    assert receipt is not None
    assert receipt.counters["refused"] == 1


def test_a_move_of_whole_rows_reads_nothing(tmp_path: Path) -> None:
    stream = upserts(tmp_path, tasks=1)
    stream.checkpoint(changes((1, 1, "a1", "b1", C)))
    staged = stream.stage(changes(*move(2, 1, 2, a="A", b="B")))
    assert staged is not None
    assert not any(result.held_rows or result.moved_rows for result in staged[1])
    stream.run.commit(*staged)
    assert rows(stream) == {2: ("A", "B")}
