"""Truncates: what is older than they are goes, whatever comes through another partition earlier or later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.records import ROW_KIND, ROW_SEQUENCE, RowKind
from streamlake.spec.metadata.data_file import FileContent
from streamlake.write.upsert import upsert_writer
from streamlake.write.upsert.truncation import later
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts

C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
Row = tuple[int, int, RowKind]


def changes(*rows: Row) -> pa.Table:
    """Changes (id, place in the log, kind)."""
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "lsn": pa.array([row[1] for row in rows], pa.int64()),
            ROW_KIND: pa.array([int(row[2]) for row in rows], pa.int8()),
        }
    )


def upserts(home: Path, ddl: str = "id long, lsn long", **options: Any) -> LocalUpserts:
    location = str(home / "table")
    create_table(location, ddl, format_version=3)
    return LocalUpserts(location, key=["id"], **{"sequence_by": ["lsn"], **options})


def rows(stream: LocalUpserts) -> dict[int, int]:
    found = load_table(stream.location).scan().to_arrow().to_pylist()
    check_table(stream.table)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["lsn"] for row in found}


@pytest.mark.parametrize("place", [0, 1, 2, 99])
@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
def test_older_rows_go_whenever_the_truncate_is_told(tmp_path: Path, place: int, delete_mode: str) -> None:
    stream = upserts(tmp_path, delete_mode=delete_mode, batch_rows=1)
    stream.checkpoint(changes(*((n, n, C) for n in range(20))))
    receipt = stream.checkpoint(
        changes((3, 11, U), (4, 9, U), (30, 9, C), (31, 12, C), (12, 13, D)), truncates=[(10, place)]
    )
    assert rows(stream) == {**{n: n for n in range(10, 20) if n != 12}, 3: 11, 31: 12}
    assert receipt is not None


def test_changes_of_a_slower_partition_are_late(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes((1, 1, C), (2, 2, C)))
    stream.checkpoint(changes((9, 60, C)), truncates=[(50, 0), (40, 0)])
    stream.restart()
    receipt = stream.checkpoint(changes((1, 30, U), (7, 49, C), (8, 50, C), (9, 45, D)))
    assert rows(stream) == {8: 50, 9: 60}
    assert receipt is not None
    assert receipt.counters["late"] == 3
    stream.checkpoint(changes(), truncates=[(20, 0)])
    stream.checkpoint(changes((7, 49, C)))
    assert rows(stream) == {8: 50, 9: 60}


def test_a_truncate_alone_is_committed(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    assert stream.checkpoint(changes(), truncates=[(50, 0)]) is not None
    stream.restart()
    stream.checkpoint(changes((1, 30, C), (2, 60, C)))
    assert rows(stream) == {2: 60}


def test_files_without_a_row_are_removed(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes(*((n, n, C) for n in range(100))))
    stream.checkpoint(changes((7, 200, U)))
    receipt = stream.checkpoint(changes((8, 300, C)), truncates=[(250, 1)])
    files = [entry.data_file for entry in live_entries(load_table(stream.location).table)]
    assert [file.content for file in files] == [FileContent.DATA]
    assert rows(stream) == {8: 300}
    assert receipt is not None
    assert receipt.counters["truncated-rows"] == 99, "one was replaced before"


def test_rows_of_others_have_no_place_and_go(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes((1, 90, C)))
    others = pa.table({"id": pa.array([2, 3], pa.int64()), "lsn": pa.array([None, 95], pa.int64())})
    foreign_writers.append_rows(stream.location, others)
    stream.checkpoint(changes(), truncates=[(50, 0)])
    assert rows(stream) == {1: 90, 3: 95}


def test_a_head_that_moves_meanwhile(tmp_path: Path) -> None:
    stream = upserts(tmp_path)
    stream.checkpoint(changes(*((n, n, C) for n in range(10))))
    stream.checkpoint(
        changes((20, 60, C)),
        between=lambda _: foreign_writers.compact(stream.location, lambda at: True),
        truncates=[(50, 0)],
    )
    assert rows(stream) == {20: 60}
    stream.checkpoint(changes((5, 40, U)))
    assert rows(stream) == {20: 60}


def test_many_keys_are_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert_writer, "MOST_ENTRIES", 50)
    stream = upserts(tmp_path)
    stream.checkpoint(changes(*((n, n, C) for n in range(500))))
    stream.checkpoint(changes(*((n, 1000, U) for n in range(100))), truncates=[(400, 0), (900, 9)])
    assert rows(stream) == dict.fromkeys(range(100), 1000)


def test_places_that_are_text(tmp_path: Path) -> None:
    stream = upserts(tmp_path, "id long, lsn string")
    made = changes((1, 1, C), (2, 2, C))
    stream.checkpoint(made.set_column(1, "lsn", pa.array(["000a", "000b"])))
    stream.checkpoint(made.slice(0, 0), truncates=[("000b", 0)])
    assert rows(stream) == {2: "000b"}


@pytest.mark.parametrize(
    ("options", "ddl", "mark", "error"),
    [
        ({"sequence_by": []}, "id long, lsn long", 5, InvalidOptionError),
        ({"delete_mode": "equality"}, "id long, lsn long", 5, InvalidOptionError),
        ({"mode": "changelog"}, "id long, lsn long", 5, InvalidOptionError),
        ({"sequence_by": ["lsn", "id"]}, "id long, lsn long", 5, InvalidOptionError),
        ({}, "id long, lsn long", "x", SchemaMismatchError),
        ({}, "id long, lsn string", 5, SchemaMismatchError),
    ],
)
def test_truncates_that_cannot_be_carried_out(
    tmp_path: Path, options: dict[str, Any], ddl: str, mark: int | str, error: type[Exception]
) -> None:
    stream = upserts(tmp_path, ddl, **options)
    with pytest.raises(error, match=r"trunc.*sequence_by=\['_row_sequence'\]"):
        stream.checkpoint(changes(), truncates=[(mark, 0)])


def test_places_that_the_table_does_not_keep(tmp_path: Path) -> None:
    """SequenceValues are in the index alone: they hold from checkpoint to checkpoint, and are unknown where it is built anew."""
    create_table(str(tmp_path / "table"), "id long, v long", format_version=3)
    options: dict[str, Any] = {"key": ["id"], "sequence_by": [ROW_SEQUENCE]}
    stream = LocalUpserts(str(tmp_path / "table"), **options)

    def placed(*given: Row) -> pa.Table:
        made = changes(*given)
        return made.rename_columns(["id", "v", ROW_KIND]).append_column(ROW_SEQUENCE, made.column("lsn"))

    def found() -> dict[int, int]:
        rows = load_table(stream.location).scan().to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in rows}

    stream.checkpoint(placed((1, 10, C), (2, 20, C), (3, 30, C)))
    stream.restart()
    stream.checkpoint(placed((1, 5, U), (2, 25, U), (9, 21, C)), truncates=[(22, 0)])
    assert found() == {2: 25, 3: 30}
    stream.checkpoint(placed((2, 24, U), (8, 21, C), (3, 31, D)))
    assert found() == {2: 25}
    for path in (tmp_path / "table" / "metadata" / "_index").iterdir():
        path.unlink()
    stream.restart()
    stream.checkpoint(placed((2, 24, U)))
    assert found() == {2: 24}
    with pytest.raises(InvalidOptionError, match="copy-on-write"):
        LocalUpserts(stream.location, delete_mode="copy-on-write", **options)


def test_marks_of_two_databases() -> None:
    assert (later(None, 3), later(4, None), later(4, 3), later("a", "b")) == (3, 4, 4, "b")
    with pytest.raises(InvalidOptionError, match="different databases"):
        later("a", 3)
