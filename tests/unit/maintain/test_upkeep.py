"""The upkeep of a table: which actions run, what it reports, and when a table needs care."""

from __future__ import annotations

import os
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from streamlake import clock
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.cli.commands.status import view
from streamlake.errors import InvalidOptionError
from streamlake.maintain import care
from streamlake.maintain.ages import before_ms
from streamlake.maintain.care import Figures, care_needed, figures
from streamlake.maintain.retention import MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.operate.status.driver_status import DriverStatus, RunState
from streamlake.operate.status.status import PipelineStatus
from streamlake.operate.status.table_status import StatusTarget, table_status
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import LoadedTable, load_table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.tables import make_table


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array(["a"] * len(ids))})


@pytest.fixture
def table(tmp_path: Path) -> LoadedTable:
    """Six small commits, and an old file that belongs to nothing."""
    table = make_table(tmp_path / "t")
    for each in range(6):
        append(table, rows(each))
    litter = Path(table.location, "data", "litter.parquet")
    litter.write_bytes(b"x")
    then = clock.now_ms() / 1000 - 10 * 86_400
    os.utime(litter, (then, then))
    return load_table(table.location)


def test_everything_at_once(table: LoadedTable) -> None:
    planned = table.maintain(older_than="0s", dry_run=True)
    assert planned.before == planned.after
    assert len(table.snapshots) == 6
    done = table.maintain(older_than="0s")
    assert done.compaction is not None
    assert (done.compaction.rewritten.files, done.compaction.added.files) == (6, 1)
    assert done.manifests is not None
    assert done.expiry is not None
    assert len(done.expiry.snapshots) == 6
    assert done.orphans is not None
    assert done.orphans.deleted.files == 1
    assert (done.before.snapshots, done.after.snapshots) == (6, 1)
    assert (done.before.data_files, done.after.data_files) == (6, 1)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(6))
    check_table(table.table, files_exist=True)


def test_history_stays_where_nobody_has_agreed_to_lose_it(table: LoadedTable) -> None:
    UpdateProperties(table.table).remove(MAX_SNAPSHOT_AGE).remove(MIN_SNAPSHOTS).commit()
    done = table.maintain()
    assert done.expiry is None
    assert "history.expire.max-snapshot-age-ms" in done.left_out["expire"]
    assert table.maintain(["expire"]).expiry is not None, "it was asked for: five days, as Iceberg has it"
    assert table.maintain(retain_last=3).expiry is not None
    UpdateProperties(table.table).set("history.expire.max-snapshot-age-ms", "0").commit()
    clock.sleep(0.01)
    done = table.maintain()
    assert done.expiry is not None
    assert len(done.expiry.snapshots) == 6


def test_only_what_is_asked_for(table: LoadedTable) -> None:
    done = table.maintain(["orphans", "metadata"], delete_orphans=False)
    assert (done.manifests, done.expiry) == (None, None)
    assert done.left_out == {}
    assert done.metadata is not None
    assert done.orphans is not None
    assert (len(done.orphans.orphans), done.orphans.deleted.files) == (1, 0)
    with pytest.raises(InvalidOptionError, match="no action 'orphan' of maintenance; did you mean 'orphans'"):
        table.maintain(["orphan"])


def test_ages() -> None:
    now = clock.now_ms()
    for text, ms in (("5d", 432_000_000), (" 12 h ", 43_200_000), ("1.5m", 90_000), ("7s", 7_000)):
        assert abs(now - ms - (before_ms(text) or 0)) < 60_000
    assert before_ms("2024-01-31T10:00:00Z") == before_ms(1_706_695_200_000) == 1_706_695_200_000
    assert before_ms(None) is None
    for wrong in ("5 weeks", "", True):
        with pytest.raises(InvalidOptionError, match="neither an age"):
            before_ms(wrong)


GOOD = Figures(10, 10_000, 10, 5, 50_000, 1_000, 10, 1_000 * 2**29)


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({}, None),
        ({"data_files": 100, "bytes": 100}, None),
        ({"bytes": 1_000 * 2**26}, None),
        ({"bytes": 1_000 * 2**26 - 1}, "small-files"),
        ({"delete_files": 501}, "many-deletes"),
        ({"delete_files": 500}, None),
        ({"data_files": None, "bytes": None, "delete_files": None}, None),
        ({"snapshots": 2_001}, "many-snapshots"),
        ({"metadata_bytes": 11 * 2**20}, "many-snapshots"),
        ({"metadata_bytes": None}, None),
        ({"manifests": 103}, "many-manifests"),
        ({"manifests": 110, "manifest_bytes": 50 * 2**23}, None),
    ],
)
def test_when_a_table_needs_care(figures: dict[str, Any], kind: str | None, tmp_path: Path) -> None:
    needed = care_needed(make_table(tmp_path / "t"), replace(GOOD, **figures))
    assert [each.kind for each in needed] == ([] if kind is None else [kind])
    if kind in ("small-files", "many-deletes"):
        assert needed[0].command == f"`streamlake maintain {tmp_path / 't'} --only compact`"


def test_metadata_that_is_kept_for_ever(tmp_path: Path) -> None:
    properties = {
        "write.metadata.delete-after-commit.enabled": "false",
        "write.metadata.previous-versions-max": "3",
    }
    table = make_table(tmp_path / "t", properties=properties)
    assert care_needed(table) == ()
    for each in range(4):
        append(table, rows(each))
    (needed,) = care_needed(table)
    assert needed.kind == "metadata-kept"
    UpdateProperties(table).set("write.metadata.delete-after-commit.enabled", "true").commit()
    assert care_needed(table) == ()


def test_figures_of_tables(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    found = figures(table)
    assert (found.snapshots, found.manifests, found.data_files) == (0, 0, None)
    append(table, rows(1, 2))
    found = figures(table)
    newest = Path(table.location, "metadata", "v2.metadata.json")
    assert (found.snapshots, found.metadata_bytes, found.metadata_files) == (1, newest.stat().st_size, 1)
    assert (found.manifests, found.data_files, found.delete_files) == (1, 1, 0)


def test_the_doctor_says_so(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(care, "MANY_SNAPSHOTS", 5)
    found = {finding.check: finding for finding in diagnose(table.location).findings}
    assert (
        found["many-snapshots"].fix == f"`streamlake maintain {table.location} --only expire --older-than 5d`"
    )
    assert not found["many-snapshots"].is_violation


def test_status_names_it(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    target = StatusTarget(table.location)
    assert table_status(target).needs_care == ()
    monkeypatch.setattr(care, "MANY_SNAPSHOTS", 5)
    assert table_status(target).needs_care == ("many-snapshots",)
    found = view(PipelineStatus(None, (table_status(target),)))
    console = Console(width=200, record=True, file=StringIO())
    console.print(found)
    assert f"{table.location}: many-snapshots; `streamlake doctor` says what helps" in console.export_text()
    head = table.current_snapshot
    assert head is not None
    assert head.manifest_list is not None
    Path(head.manifest_list).unlink()
    assert table_status(target).needs_care == ()


def test_status_shows_the_maintenance_beside_the_stream() -> None:
    upkeep = (
        TableUpkeep("/lake/a", 1_700_000_000_000, ("compact", "expire"), "data files 90 to 3"),
        TableUpkeep("/lake/b", due=("compact",), waits_for="the stream, which is behind"),
        TableUpkeep("/lake/c", 1_700_000_000_000, due=("expire",), error="StorageError: no disk"),
    )
    driver = DriverStatus(RunState.RUNNING, "host", 7, 1, 2, maintenance=upkeep)
    text = StringIO()
    Console(file=text, width=200).print(view(PipelineStatus("p", (), driver=driver)))
    for part in (
        "/lake/a: 2023-11-14 22:13:20.000 compact, expire: data files 90 to 3",
        "/lake/b: compact due, waits for the stream, which is behind",
        "/lake/c: 2023-11-14 22:13:20.000 nothing done; expire due; failed, tried again later: StorageError: no disk",
    ):
        assert part in text.getvalue()
