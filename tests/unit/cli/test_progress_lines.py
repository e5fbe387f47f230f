"""Progress of commands: each line has its time, what is done of how much, and how long the rest takes."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from streamlake import clock
from streamlake.cli import main as cli
from streamlake.cli.commands import run as run_command
from streamlake.cli.views import task_progress as view
from streamlake.cli.views.task_progress import step_progress, task_progress
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.pipeline.definition.progress import ProgressState
from tests.helpers.tables import make_table

NOON_MS = 1_773_489_600_000


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_LINE_SECONDS", 0.02)


@pytest.mark.usefixtures("often")
def test_lines_have_the_time_what_is_done_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with step_progress("replay-rejects orders") as on_progress:
        on_progress("decoding records", 0, 1_200)
        time.sleep(0.1)
        on_progress("decoding records", 300, 1_200)
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d replay-rejects orders: decoding records: 0 of 1,200", lines[0])
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d replay-rejects orders: decoding records: 300 of 1,200, about \d+\.\d s left",
        lines[-1],
    )


@pytest.mark.usefixtures("often")
def test_a_step_without_a_total_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with step_progress("doctor orders") as on_progress:
        on_progress("files", 4_000, None)
        time.sleep(0.1)
    assert capsys.readouterr().err.splitlines()[0][8:] == " doctor orders: files, 4,000 so far"


def test_a_quick_command_says_nothing_of_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with step_progress("doctor orders") as on_progress:
        on_progress("files", 1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("often")
def test_tasks_of_a_step_are_told_with_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    working = _Working()
    with task_progress("verify: starting") as progress:
        progress.say("verify: comparing", working)
        time.sleep(0.1)
        working.numCompletedTasks = 2
        time.sleep(0.1)
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"\S+ verify: comparing: 2 of 4 tasks of this step, about \d+\.\d s left", last)


def test_a_pace_begins_anew_with_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    pace = view._Pace()
    assert pace.seconds_left("a", 10, 100) is None
    now = 5.0
    assert pace.seconds_left("a", 20, 100) == 40.0
    assert pace.seconds_left("b", 20, 100) is None
    now = 6.0
    assert pace.seconds_left("b", 21, 100) == 79.0


def test_doctor_and_recover_say_which_step_they_are_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    Plan((Step("one", lambda: None), Step("two", lambda: None))).carry_out(
        lambda step, done, total: seen.append((step, done, total))
    )
    assert seen == [("steps", 0, 2), ("steps", 1, 2)]
    begun: list[str] = []
    shown = view.step_progress

    def watched(text: str) -> Any:
        begun.append(text)
        return shown(text)

    from streamlake.cli.commands import doctor

    monkeypatch.setattr(doctor, "step_progress", watched)
    make_table(tmp_path / "t", "id long")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["doctor", str(tmp_path / "t")])
    assert begun == [f"doctor {tmp_path}/t"]


def test_lines_of_a_run_have_their_time_their_table_and_how_much_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOON_MS)
    receipts = [
        CommitReceipt("job", 3, Outcome.EMPTY, None, table="lake.orders"),
        CommitReceipt("job", 3, Outcome.EMPTY, None),
    ]
    run_command.report(receipts, ProgressState(seconds=10.0, offsets=(250, 1_000)))
    run_command.report(receipts[1:], ProgressState(seconds=10.0, offsets=(1_000, 1_000)))
    run_command.report(receipts[1:], ProgressState(seconds=10.0))
    assert capsys.readouterr().out.splitlines() == [
        "2026-03-14 12:00:00 checkpoint 3 of lake.orders: empty",
        "2026-03-14 12:00:00 checkpoint 3: empty; read 250 of 1,000 offsets, about 30.0 s left",
        "2026-03-14 12:00:00 checkpoint 3: empty; read 1,000 of 1,000 offsets",
        "2026-03-14 12:00:00 checkpoint 3: empty",
    ]


class _Working:
    """A session with one active stage."""

    numTasks, numCompletedTasks = 4, 1

    @property
    def sparkContext(self) -> Any:
        return self

    def statusTracker(self) -> Any:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1]

    def getStageInfo(self, stage: int) -> Any:
        return self if stage == 1 else None
