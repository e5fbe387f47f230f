"""The whole crash matrix: `python -m tests.crash.matrix [--seed N] [--schedules K]`.

Drivers of real streams die at every failpoint, in every way, for every kind of stream, from files and from a Kafka broker,
and again while they recover. Prints what ran and what came of it; the exit code is 1 when a table was wrong. A seed makes
the same schedules again; `--only NAME` runs one of them, and keeps what it leaves. With `--report FILE --resume` it goes on
where an earlier run has stopped, and `--minutes M` makes it stop: the whole is run in parts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streamlake.cli.views.rendering import facts, grid, human_count, terminal
from streamlake.failpoints import REGISTERED
from tests.crash.change_log import PARTS, FileInput, KafkaInput, TableInput
from tests.crash.matrix_report import DeathRecord, Decided, MatrixReport
from tests.crash.schedule_run import ScheduleRun
from tests.crash.schedules import Schedule, pairwise, whole_matrix
from tests.helpers.broker import KafkaBroker
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.readers import SparkReader
from tests.helpers.spark import build_session, spark_environment

MOST_TABLES_AT_ONCE = 25
"""So many finished tables wait for the second reader, whose session is not there while drivers run."""


@dataclass
class Matrix:
    """The schedules at work below `home`, until `deadline`; what comes of them goes to `report`."""

    home: Path
    console: Console
    report: MatrixReport
    keep: bool
    deadline: float | None = None

    def __post_init__(self) -> None:
        self._started = time.monotonic() - self.report.seconds
        self._broker: KafkaBroker | None = None

    @property
    def seconds(self) -> float:
        """How long this part and those before it have taken."""
        return time.monotonic() - self._started

    def run(self, schedules: list[Schedule]) -> None:
        waiting: list[ScheduleRun] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            shown = progress.add_task("schedules", total=len(schedules))
            for schedule in schedules:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    break
                progress.update(shown, description=schedule.stream)
                run = self._run(schedule)
                waiting += [] if run is None else [run]
                if len(waiting) >= MOST_TABLES_AT_ONCE:
                    self._read_by_another(waiting)
                    waiting = []
                progress.advance(shown)
            progress.update(shown, description="read by Iceberg's runtime")
            self._read_by_another(waiting)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def _run(self, schedule: Schedule) -> ScheduleRun | None:
        home = self.home / schedule.name
        shutil.rmtree(home, ignore_errors=True)
        run = ScheduleRun(schedule, home, self._input(schedule, home))
        return run if self._holds(run, run.run) else None

    def _holds(self, run: ScheduleRun, check: object) -> bool:
        """Whether the check passes; where it does not, that is the schedule's outcome."""
        try:
            check()  # type: ignore[operator]
        except Exception as error:
            self._decide(run, f"{type(error).__name__}: {error}")
            self.console.print(
                f"wrong: {run.schedule} (left in {run.home})\n  {str(error)[:2000]}", markup=False
            )
            return False
        return True

    def _decide(self, run: ScheduleRun, error: str | None) -> None:
        met = tuple(
            DeathRecord(
                each.death.who, each.death.failpoint, each.came, each.exit_code, each.committed, each.seconds
            )
            for each in run.met
        )
        decided = Decided(run.schedule, error, met, run.rows, run.checkpoints, dict(run.orphans))
        self.report.add(decided, self.seconds)

    def _input(self, schedule: Schedule, home: Path) -> FileInput | KafkaInput | TableInput:
        if schedule.input == "file":
            return FileInput(home / "landing", schedule.mode)
        if schedule.input == "table":
            return TableInput(home / "upstream", schedule.mode)
        if self._broker is None:
            self._broker = KafkaBroker(self.home / "kafka")
            self._broker.start()
        return KafkaInput(
            self._broker,
            self._broker.create_topic(partitions=PARTS),
            schedule.mode,
            damaged=schedule.is_damaged,
        )

    def _read_by_another(self, runs: list[ScheduleRun]) -> None:
        if not runs:
            return
        session = build_session(self.home / "reader", runtime_jars=jars(iceberg_runtime()))
        try:
            reader = SparkReader(session)
            for run in runs:
                if self._holds(run, lambda run=run: run.check_by(reader)):
                    self._decide(run, None)
                    if not self.keep:
                        shutil.rmtree(run.home)
        finally:
            session.stop()


def show(report: MatrixReport, planned: list[Schedule], seconds: float, console: Console) -> None:
    """Print what ran, in this part and those before it."""
    columns = [
        ("failpoint", "left"),
        ("driver", "right"),
        ("worker", "right"),
        ("driver, at a task", "right"),
        ("in a recovery", "right"),
        ("not reached", "right"),
    ]
    again, missed = report.again(), report.missed()
    rows = []
    for name in REGISTERED:
        who = report.who(name)
        counts = (*(who[each] for each in ("driver", "worker", "task")), again[name], missed[name])
        rows.append((name, *(str(count or "") for count in counts)))
    console.print(grid("Deaths", columns, rows))
    console.print(
        grid(
            "Streams",
            [("stream", "left"), ("schedules", "right"), ("deaths", "right")],
            [(name, str(count), str(deaths)) for name, (count, deaths) in report.streams().items()],
        )
    )
    told = report.facts(seconds, planned)
    console.print(
        facts([(name, human_count(v) if isinstance(v, int) else str(v)) for name, v in told.items()])
    )
    for wrong in report.wrong:
        console.print(f"wrong: {wrong.schedule}: {str(wrong.error)[:500]}", markup=False)


def main(
    seed: Annotated[int, typer.Option(help="The schedules follow from it.")] = 1,
    schedules: Annotated[
        int | None,
        typer.Option(min=1, help="So many of them (default: all); the first ones are a fair sample."),
    ] = None,
    subset: Annotated[bool, typer.Option("--pairwise", help="The subset that pytest runs.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="One schedule, by its name in the output.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where tables go (default: a temporary directory).")
    ] = None,
    json_report: Annotated[
        Path | None, typer.Option("--report", help="Keep what comes of each schedule there, as JSON.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Run only what the report does not have yet.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no schedule after so many minutes; --resume goes on there.")
    ] = None,
) -> None:
    """Kill drivers and workers of streams at every failpoint, and compare every table with what it should hold."""
    os.environ.update(spark_environment())
    known = pairwise() if subset else whole_matrix(seed)
    chosen = [each for each in known if only in (None, each.name)][:schedules]
    if not chosen:
        raise typer.BadParameter(f"there is no schedule '{only}' of seed {seed}")
    if resume and json_report is None:
        raise typer.BadParameter("--resume needs --report FILE, which says what has been run")
    report = MatrixReport(seed, json_report, resumed=resume)
    due = chosen if only else [each for each in chosen if not report.is_decided(each)]
    place = home or Path(tempfile.mkdtemp(prefix="streamlake-matrix-"))
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    matrix = Matrix(place, terminal(), report, only is not None, deadline)
    try:
        matrix.run(due)
    finally:
        matrix.close()
        report.write(matrix.seconds)
    show(report, chosen, matrix.seconds, matrix.console)
    if home is None and not report.wrong and only is None:
        shutil.rmtree(place)
    raise typer.Exit(1 if report.wrong else 0)


if __name__ == "__main__":
    typer.run(main)
