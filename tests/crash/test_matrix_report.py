"""A crash matrix that is run in parts: what is decided is kept, whatever ends a part, and is not run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.crash import matrix
from tests.crash.matrix import Matrix
from tests.crash.matrix_report import Decided, MatrixReport
from tests.crash.schedule_run import Met
from tests.crash.schedules import Schedule, whole_matrix

SCHEDULES = [each for each in whole_matrix(3) if each.input == "file"][:5]


class Interrupted(BaseException):
    """The machine goes away."""


class Runs:
    """What stands in for ScheduleRun: no drivers, an outcome that was chosen."""

    def __init__(self, wrong: str = "", ends_at: str = "") -> None:
        self.ran: list[str] = []
        self.wrong = wrong
        self.ends_at = ends_at

    def __call__(self, schedule: Schedule, home: Path, source: object) -> Any:
        return _Run(self, schedule, home)


class _Run:
    def __init__(self, runs: Runs, schedule: Schedule, home: Path) -> None:
        self.schedule, self.home, self._runs = schedule, home, runs
        self.met = [Met(death, True, 137, at, 1.5) for at, death in enumerate(schedule.deaths)]
        self.rows, self.checkpoints, self.orphans = 10, 3, {"data": 2}

    def run(self) -> None:
        if self.schedule.name == self._runs.ends_at:
            raise Interrupted
        self._runs.ran.append(self.schedule.name)
        self.home.mkdir(parents=True)
        assert self.schedule.name != self._runs.wrong, "rows are missing"

    def check_by(self, reader: object) -> None:
        """Another engine agrees."""


def _part(report: Path, home: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> MatrixReport:
    """One part of the matrix of SCHEDULES, as the command runs it."""
    monkeypatch.setattr(matrix, "ScheduleRun", runs)
    monkeypatch.setattr(matrix, "build_session", lambda *given, **named: _Session())
    monkeypatch.setattr(matrix, "iceberg_runtime", lambda: None)
    monkeypatch.setattr(matrix, "jars", lambda *given: "")
    monkeypatch.setattr(matrix, "MOST_TABLES_AT_ONCE", 1)
    kept = MatrixReport(3, report, resumed=True)
    part = Matrix(home, Console(quiet=True), kept, keep=False)
    part.run([each for each in SCHEDULES if not kept.is_decided(each)])
    return kept


class _Session:
    def stop(self) -> None:
        """Nothing was started."""


def test_a_part_that_is_interrupted_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, names = tmp_path / "matrix.json", [each.name for each in SCHEDULES]
    first = Runs(wrong=names[1], ends_at=names[3])
    with pytest.raises(Interrupted):
        _part(report, tmp_path / "home", first, monkeypatch)
    assert first.ran == names[:3]
    assert [each["schedule"]["name"] for each in json.loads(report.read_text())["outcomes"]] == names[:3]
    second = Runs()
    whole = _part(report, tmp_path / "home", second, monkeypatch)
    assert second.ran == names[3:]
    assert [each.schedule for each in whole.wrong] == [SCHEDULES[1]], "what was wrong stays so"
    told = json.loads(report.read_text())
    assert (told["schedules"], told["wrong"], told["rows compared"]) == (5, 1, 50)
    assert told["deaths"] == sum(len(each.deaths) for each in SCHEDULES)
    assert Runs().ran == _run_again(report, tmp_path, monkeypatch)


def _run_again(report: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    runs = Runs()
    _part(report, home / "home", runs, monkeypatch)
    return runs.ran


def test_a_schedule_that_has_become_another_one_is_run_again(tmp_path: Path) -> None:
    report = MatrixReport(3, tmp_path / "matrix.json", resumed=False)
    report.add(Decided(SCHEDULES[0], None), 1)
    kept = MatrixReport(3, tmp_path / "matrix.json", resumed=True)
    assert kept.is_decided(SCHEDULES[0])
    assert not kept.is_decided(replace(SCHEDULES[0], deaths=SCHEDULES[1].deaths))
    assert not kept.is_decided(SCHEDULES[1])


def test_the_report_of_another_seed_is_refused(tmp_path: Path) -> None:
    MatrixReport(3, tmp_path / "matrix.json", resumed=False).write(1)
    with pytest.raises(ValueError, match="is the report of seed 3, not of 4"):
        MatrixReport(4, tmp_path / "matrix.json", resumed=True)
