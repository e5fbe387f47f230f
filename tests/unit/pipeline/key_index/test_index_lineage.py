"""What only the key index knows survives what others do to the table's history, its schema and its files, or its loss is told."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import clock, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.operate.recover.recovery import Recovery
from streamlake.records import ROW_KIND, ROW_SEQUENCE, RowKind
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

Change = tuple[Any, str | None, int]
"""Key, value (None: it is deleted), place in the log."""


def changes(*rows: Change, type_: Any = None) -> pa.Table:
    kinds = [RowKind.DELETE if value is None else RowKind.UPDATE_AFTER for _, value, _ in rows]
    return pa.table(
        {
            "id": pa.array([key for key, _, _ in rows], type_ or pa.int64()),
            "v": [value or "" for _, value, _ in rows],
            ROW_SEQUENCE: pa.array([place for _, _, place in rows], pa.int64()),
            ROW_KIND: pa.array([int(kind) for kind in kinds], pa.int8()),
        }
    )


def stream_of(home: Path, ddl: str = "id long, v string") -> LocalUpserts:
    make_table(home, ddl, (), 3)
    return LocalUpserts(str(home), key=["id"], sequence_by=[ROW_SEQUENCE])


def live(stream: LocalUpserts) -> list[tuple[Any, Any]]:
    check_table(open_table(stream.location), files_exist=True)
    rows = load_table(stream.location).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["v"]) for row in rows)


def append_other(stream: LocalUpserts, key: int) -> None:
    foreign_writers.append_rows(stream.location, pa.table({"id": [key], "v": ["other"]}))


def expire(stream: LocalUpserts) -> None:
    """All snapshots but the head's, as with retain_last=1."""

    def change(base: TableMetadata) -> TableMetadata:
        kept = {ref.snapshot_id for ref in base.refs.values()}
        return changed(
            base,
            snapshots=tuple(each for each in base.snapshots if each.snapshot_id in kept),
            snapshot_log=tuple(each for each in base.snapshot_log if each.snapshot_id in kept),
        )

    commit_metadata(open_table(stream.location), change)


@pytest.mark.parametrize("commits", [1, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_index_outlives_the_snapshots_that_it_was_built_on(
    tmp_path: Path, restarts: bool, commits: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(tmp_path)
    stream.checkpoint(changes((1, "new", 100), (2, "x", 90), (3, "x", 90)))
    stream.checkpoint(changes((2, None, 100)))
    for number in range(commits):
        append_other(stream, 100 + number)
    expire(stream)
    if restarts:
        stream.restart()
    receipt = stream.checkpoint(changes((1, "late", 50), (2, "late", 50), (3, "next", 91)))
    assert receipt is not None
    assert receipt.counters["late"] == 2
    assert receipt.counters["rows-indexed"] == (1 if commits == 1 and not restarts else 3 + commits)
    others = [(100 + number, "other") for number in range(commits)]
    assert live(stream) == [(1, "new"), (3, "next"), *others]
    assert not caplog.records


@pytest.mark.parametrize("restarts", [False, True])
def test_in_a_table_that_was_set_back_and_expired_rows_are_where_they_are(
    tmp_path: Path, restarts: bool
) -> None:
    """The last index has another row of key 1, in a file that is live no more."""
    stream = stream_of(tmp_path)
    stream.checkpoint(changes((1, "first", 10), (2, "kept", 10)))
    before = open_table(stream.location).metadata.current_snapshot_id
    assert before is not None
    stream.checkpoint(changes((1, "second", 20)))
    ManageRefs(open_table(stream.location)).set_branch("main", before).commit()
    append_other(stream, 100)
    expire(stream)
    if restarts:
        stream.restart()
    stream.checkpoint(changes((1, "third", 30)))
    assert live(stream) == [(1, "third"), (2, "kept"), (100, "other")]


PROPERTY = "streamlake.pipeline.pipeline"


def recovery(stream: LocalUpserts, checkpoints: int, job_id: str = "job") -> Recovery:
    """Plans for the stream and a checkpoint directory that has done so many checkpoints."""
    home = Path(stream.location) / "checkpoint"
    for log in ("offsets", "commits"):
        (home / log).mkdir(parents=True)
    (home / "metadata").write_text(json.dumps({"id": job_id}))
    for number in range(checkpoints):
        (home / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number}")
        (home / "commits" / str(number)).write_text("v1\n{}")
    return Recovery(
        open_table(stream.location), "main", "pipeline", SparkDirectory(str(home)), stream.location
    )


def of_job(stream: LocalUpserts, job_id: str, checkpoint_id: int) -> LocalUpserts:
    """The next driver of the stream."""
    after = LocalUpserts(stream.location, key=["id"], sequence_by=[ROW_SEQUENCE], job_id=job_id)
    after.checkpoint_id = checkpoint_id
    return after


@pytest.mark.parametrize("since", ["nothing", "others"])
@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("way", ["adopt", "adopt-another-job", "rewind", "rollback", "rollback-in-place"])
def test_a_recovery_keeps_the_index(
    tmp_path: Path, way: str, expired: bool, since: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshots that name it expire before or after the recovery, and only the property is left."""
    stream = stream_of(tmp_path)
    stream.checkpoint(changes((1, "new", 100), (2, "x", 90), (3, "x", 90)))
    stream.checkpoint(changes((2, None, 100)))
    at, job_id = 2, "job"
    others = []

    def foreign(key: int) -> None:
        append_other(stream, key)
        others.append((key, "other"))

    if expired and way == "adopt-another-job":
        foreign(99)
        expire(stream)
    if way.startswith("adopt"):
        job_id = "job" if way == "adopt" else "job-2"
        if way == "adopt":
            UpdateProperties(open_table(stream.location)).remove(PROPERTY).commit()
        recovery(stream, at, job_id).adopt().carry_out()
    elif way == "rewind":
        stream.checkpoint(changes((1, "newer", 110), (2, "back", 110), (9, "x", 110)))
        recovery(stream, 3).rewind(1).carry_out()
    else:
        if way == "rollback":
            stream.checkpoint(changes((1, "newer", 110), (2, "back", 110), (9, "x", 110)))
        older = json.dumps(
            {**json.loads(open_table(stream.location).properties[PROPERTY]), "checkpoint-id": 0}
        )
        if way == "rollback-in-place":
            UpdateProperties(open_table(stream.location)).set(PROPERTY, older).commit()
        recovery(stream, at).rollback().carry_out()
    for key in (100, 101) if since == "others" else ():
        foreign(key)
    if expired:
        expire(stream)
    after = of_job(stream, job_id, at)
    receipt = after.checkpoint(changes((1, "late", 50), (2, "late", 50), (3, "next", 105)))
    assert receipt is not None
    assert receipt.counters["late"] == 2
    assert live(after) == [(1, "new"), (3, "next"), *sorted(others)]
    assert not caplog.records
    after.restart()
    after.checkpoint(changes((1, "again", 60), (2, "again", 60), (3, "late", 60)))
    assert live(after) == [(1, "new"), (3, "next"), *sorted(others)]


@pytest.mark.parametrize("way", ["adopt", "rewind"])
def test_an_index_that_a_recovery_cannot_keep_says_what_it_forgets(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing tells of the index any more: its snapshots and the property are gone, or the table is at a checkpoint before it."""
    if way == "adopt":
        stream = stream_of(tmp_path)
        stream.checkpoint(changes((1, "new", 100), (2, "x", 90)))
        stream.checkpoint(changes((2, None, 100)))
        UpdateProperties(open_table(stream.location)).remove(PROPERTY).commit()
        append_other(stream, 100)
        expire(stream)
        recovery(stream, 2).adopt().carry_out()
    else:
        make_table(tmp_path, "id long, v string", (), 3)
        before = LocalUpserts(str(tmp_path), key=["id"], delete_mode="equality")
        before.checkpoint(changes((1, "first", 10)).drop_columns([ROW_SEQUENCE]))
        stream = of_job(before, "job", 1)
        stream.checkpoint(changes((1, "new", 100), (2, "x", 90)))
        assert not caplog.records
        recovery(stream, 2).rewind(0).carry_out()
    after = of_job(stream, "job", 2 if way == "adopt" else 1)
    after.checkpoint(changes((3, "next", 105)))
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == 1
    assert f"the key index of file://{tmp_path} is built anew" in told[0] or str(tmp_path) in told[0]
    assert "names its index any more" in told[0]
    assert "An older change that comes again is not late then" in told[0]
    after.restart()
    after.checkpoint(changes((4, "next", 106)))
    assert len(caplog.records) == 1


def test_an_index_that_is_lost_says_what_it_forgets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(tmp_path)
    stream.checkpoint(changes((1, "new", 100)))
    for path in (tmp_path / "metadata" / "_index").glob("*.json"):
        path.unlink()
    stream.restart()
    stream.checkpoint(changes((1, "old", 50)))
    assert live(stream) == [(1, "old")]
    assert "built anew from the table" in caplog.text
    assert "An older change that comes again is not late then" in caplog.text


def test_a_key_column_that_is_added_again_is_another_one(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    stream.checkpoint(changes((1, "a", 1), (2, "b", 1)))
    UpdateSchema(open_table(stream.location)).delete("id").commit()
    UpdateSchema(open_table(stream.location)).add_column("id", "long").commit()
    with pytest.raises(InvalidOptionError, match=r"has replaced rows of .* by the key"):
        stream.checkpoint(changes((1, "new", 2)))
    values = load_table(stream.location).scan().to_arrow()["v"].to_pylist()
    assert sorted(values) == ["a", "b"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        ("int", "long", [1, -2, 3]),
        ("float", "double", [1.5, -0.0, float("nan")]),
        ("decimal(9,2)", "decimal(18,2)", [Decimal("1.50"), Decimal("-2.25"), Decimal("0.01")]),
        ("decimal(9,2)", "decimal(20,2)", [Decimal("1.50"), Decimal("-2.25"), Decimal("0.01")]),
    ],
)
@pytest.mark.parametrize("columns", [["id"], ["id", "part"]])
def test_a_key_of_a_wider_type_takes_its_index_along(
    tmp_path: Path, columns: list[str], narrow: str, wide: str, values: list[Any], restarts: bool
) -> None:
    table = make_table(tmp_path, f"id {narrow}, part string, v string", (), 3)
    stream = LocalUpserts(str(tmp_path), key=columns, sequence_by=[ROW_SEQUENCE])
    kept, gone, other = values

    def rows(type_: str, *given: Change) -> pa.Table:
        typed = arrow_type(parse_ddl(f"id {type_}").fields[0].type)
        return changes(*given, type_=typed).append_column("part", pa.array([None] * len(given), pa.string()))

    stream.checkpoint(rows(narrow, (kept, "new", 100), (gone, "x", 90), (other, "x", 90)))
    stream.checkpoint(rows(narrow, (gone, None, 100)))
    UpdateSchema(table).widen("id", wide).commit()
    if restarts:
        stream.restart()
    receipt = stream.checkpoint(rows(wide, (kept, "late", 50), (gone, "late", 50), (other, "next", 91)))
    assert receipt is not None
    assert (receipt.counters["late"], receipt.counters["rows-indexed"]) == (2, 0)
    assert sorted(load_table(str(tmp_path)).scan().to_arrow()["v"].to_pylist()) == ["new", "next"]
    check_table(open_table(str(tmp_path)), files_exist=True)


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        ("int", "long", [1, 2]),
        ("float", "double", [-1.5, 2.5]),
        ("decimal(9,2)", "decimal(12,2)", [Decimal(1), Decimal(2)]),
    ],
)
def test_an_order_of_a_wider_type_takes_its_index_along(
    tmp_path: Path, narrow: str, wide: str, values: list[Any]
) -> None:
    table = make_table(tmp_path, f"id long, at {narrow}", (), 3)
    stream = LocalUpserts(str(tmp_path), key=["id"], sequence_by=["at"])

    def row(type_: str, value: Any, kind: RowKind) -> pa.Table:
        typed = arrow_type(parse_ddl(f"at {type_}").fields[0].type)
        return pa.table(
            {"id": [1], "at": pa.array([value], typed), ROW_KIND: pa.array([int(kind)], pa.int8())}
        )

    low, high = values
    stream.checkpoint(row(narrow, high, RowKind.DELETE))
    UpdateSchema(table).widen("at", wide).commit()
    receipt = stream.checkpoint(row(wide, low, RowKind.UPDATE_AFTER))
    assert receipt is None or receipt.counters["late"] == 1
    assert load_table(str(tmp_path)).scan().count() == 0


@pytest.mark.parametrize("back", [False, True])
def test_a_clock_that_jumps_drops_no_tombstone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    now = clock.now_ms
    ahead = [0]
    monkeypatch.setattr(clock, "now_ms", lambda: now() + ahead[0])
    stream = stream_of(tmp_path)
    stream.checkpoint(changes(*((key, "x", 90) for key in range(20))))
    stream.checkpoint(changes(*((key, None, 100) for key in range(20))))
    ahead[0] = 8 * 24 * 3600 * 1000
    for number in range(12):
        stream.checkpoint(changes((1000 + number, "other", 101)))
        ahead[0] *= not back
    stream.checkpoint(changes(*((key, "late", 95) for key in range(20))))
    assert live(stream) == [(1000 + number, "other") for number in range(12)]


def test_tombstones_are_dropped_when_they_are_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms
    days = [0]
    monkeypatch.setattr(clock, "now_ms", lambda: now() + days[0] * 24 * 3600 * 1000)
    stream = stream_of(tmp_path)
    stream.checkpoint(changes(*((key, "x", 90) for key in range(20))))
    stream.checkpoint(changes(*((key, None, 100) for key in range(20))))
    for number in range(30):
        days[0] += 1
        stream.checkpoint(changes((1000 + number, "other", 101)))
    assert sum(run.tombstones for run in stream.run.index_runs) == 0
