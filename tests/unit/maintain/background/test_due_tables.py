"""Which table is due for what, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake import clock
from streamlake.maintain.background.due_tables import DueTables, MaintainedTable
from streamlake.maintain.background.lease import Lease
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.maintain.background.run_values import ActionEnding, RunReport, RunRequest
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.tables import data_file, make_table

OPTIONS = {
    "actions": ["expire", "manifests"],
    "expire.schedule.commit-count": 3,
    "manifests.schedule.commit-count": 1_000,
    "manifests.schedule.data-file-count": 4,
}


class World:
    """Tables with commits, and a clock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.due = DueTables()
        self.now = 1_000.0
        self.tables: dict[str, Table] = {}

    def commit(self, name: str = "t", files: int = 1, lag: float = 0.0) -> None:
        table = self.tables.get(name) or make_table(self.home / name)
        self.tables[name] = table
        operation = AppendFiles(table)
        for _ in range(files):
            operation.append_file(data_file(table))
        snapshot = operation.commit()
        maintained = MaintainedTable(name, None, "main", "me", MaintenanceSettings.of(OPTIONS))
        self.due.committed(maintained, table.metadata, snapshot, lag, self.now)

    def wanted(self) -> tuple[str, ...] | None:
        request = self.due.request(self.now)
        return None if request is None else request.actions

    def end(self, *errors: str | None, report: RunReport | None = None) -> RunRequest:
        """The run that is due ends, with these errors of its actions."""
        request = self.due.request(self.now)
        assert request is not None
        padded = (*errors, *[None] * len(request.actions))
        endings = [
            ActionEnding(name, error=error) for name, error in zip(request.actions, padded, strict=False)
        ]
        self.due.ended(request, report or RunReport(tuple(endings)), self.now)
        return request


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_action_is_due_by_what_commits_have_left(world: World) -> None:
    world.commit()
    world.commit()
    assert world.wanted() is None
    world.commit()
    assert world.end() == RunRequest("t", None, "main", ("expire",), "me", 900, {}, 1024**3)
    assert world.wanted() is None
    world.now += 100
    # Two files more make four since the last rewrite, which has not been yet.
    world.commit(files=2)
    assert world.wanted() == ("manifests",)


def test_the_rate_is_limited(world: World) -> None:
    for _ in range(3):
        world.commit()
    world.end()
    for _ in range(3):
        world.commit()
    world.now += 59
    assert world.wanted() is None
    [shown] = world.due.shown(world.now)
    assert shown.waits_for == "another 1 s"
    world.now += 1
    assert world.wanted() == ("manifests", "expire")


def test_a_stream_that_is_behind_is_left_alone(world: World) -> None:
    for _ in range(3):
        world.commit(lag=90)
    assert world.wanted() is None
    [shown] = world.due.shown(world.now)
    assert shown.waits_for == "the stream, which is behind"
    world.commit(lag=10)
    assert world.wanted() == ("manifests", "expire")


def test_a_stream_that_has_nothing_to_do_is_not_behind(world: World) -> None:
    for _ in range(3):
        world.commit(lag=90)
    world.now += 151
    assert world.wanted() == ("expire",)


def test_what_an_earlier_stream_has_left_counts(world: World, tmp_path: Path) -> None:
    world.tables["t"] = table = make_table(tmp_path / "t")
    for _ in range(5):
        operation = AppendFiles(table)
        operation.append_file(data_file(table)).commit()
    world.commit()
    assert world.wanted() == ("manifests", "expire")


def test_a_failure_is_tried_again_later_and_later(world: World) -> None:
    for _ in range(3):
        world.commit()
    waits = []
    for _ in range(8):
        world.end("it hurts")
        began = world.now
        while world.wanted() is None:
            world.now += 10
        waits.append(world.now - began)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    [shown] = world.due.shown(world.now)
    assert shown.error == "expire: it hurts"
    assert shown.due == ("expire",)
    world.end()
    [shown] = world.due.shown(world.now)
    assert (shown.error, shown.actions, shown.due) == (None, ("expire",), ())


def test_one_failure_does_not_repeat_what_went_well(world: World) -> None:
    for _ in range(4):
        world.commit()
    assert world.end("it hurts").actions == ("manifests", "expire")
    world.now += 60
    assert world.wanted() == ("manifests",)


def test_another_pipelines_table_is_left_until_its_lease_ends(world: World) -> None:
    for _ in range(3):
        world.commit()
    world.end(report=RunReport(held=Lease("other", clock.now_ms() + 300_000)))
    [shown] = world.due.shown(world.now)
    assert shown.waits_for == "other, which maintains it"
    assert shown.error is None
    world.now += 290
    assert world.wanted() is None
    world.now += 11
    assert world.wanted() == ("expire",)


def test_tables_take_turns(world: World) -> None:
    for name in ("a", "b"):
        for _ in range(3):
            world.commit(name)
    assert world.end().table == "a"
    assert world.end().table == "b"
    assert world.wanted() is None
