"""The whole crash matrix: `python -m tests.crash.matrix [--seed N] [--schedules K]`.

Drivers of real streams die at every failpoint, in every way, for every kind of stream, from files and from a Kafka broker,
and again while they recover. Prints what ran and what came of it; the exit code is 1 when a table was wrong. A seed makes
the same schedules again; `--only NAME` runs one of them, and keeps what it leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streamlake.cli.rendering import facts, grid, human_count, terminal
from streamlake.failpoints import REGISTERED
from tests.crash.change_log import PARTS, FileInput, KafkaInput
from tests.crash.schedule_run import ScheduleRun
from tests.crash.schedules import RANDOM, Schedule, pairwise, whole_matrix
from tests.helpers.broker import KafkaBroker
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.readers import SparkReader
from tests.helpers.spark import build_session, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TABLES_AT_ONCE = 25
"""So many finished tables wait for the second reader, whose session is not there while drivers run."""


@dataclass
class Failed:
    """A schedule whose table was wrong, and where it lies."""

    schedule: Schedule
    error: str
    home: Path


@dataclass
class Matrix:
    """The schedules at work below `home`."""

    home: Path
    console: Console
    keep: bool

    def __post_init__(self) -> None:
        self.runs: list[ScheduleRun] = []
        self.failed: list[Failed] = []
        self._broker: KafkaBroker | None = None
        self._session: SparkSession | None = None

    def run(self, schedules: list[Schedule]) -> None:
        waiting: list[ScheduleRun] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            shown = progress.add_task("schedules", total=len(schedules))
            for schedule in schedules:
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
        run = ScheduleRun(schedule, home, self._input(schedule, home))
        self.runs.append(run)
        return run if self._holds(run, run.run) else None

    def _holds(self, run: ScheduleRun, check: object) -> bool:
        try:
            check()  # type: ignore[operator]
        except Exception as error:
            self.failed.append(Failed(run.schedule, f"{type(error).__name__}: {error}", run.home))
            self.console.print(f"[red]wrong[/red] {run.schedule}\n  {str(error)[:2000]}", markup=True)
            return False
        return True

    def _input(self, schedule: Schedule, home: Path) -> FileInput | KafkaInput:
        if schedule.input == "file":
            return FileInput(home / "landing", schedule.mode)
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
                if self._holds(run, lambda run=run: run.check_by(reader)) and not self.keep:
                    shutil.rmtree(run.home)
        finally:
            session.stop()


def report(matrix: Matrix, seed: int, seconds: float) -> dict[str, object]:
    """Print what ran; returns it, JSON-ready."""
    met = [each for run in matrix.runs for each in run.met]
    came = [each for each in met if each.came]
    who = {
        name: Counter(each.death.who for each in came if each.death.failpoint == name) for name in REGISTERED
    }
    again = Counter(each.death.failpoint for run in matrix.runs for each in run.met[1:] if each.came)
    missed = Counter(each.death.failpoint for each in met if not each.came)
    columns = [
        ("failpoint", "left"),
        ("driver", "right"),
        ("worker", "right"),
        ("driver, at a task", "right"),
    ]
    rows = [
        (
            name,
            *(str(who[name][each] or "") for each in ("driver", "worker", "task")),
            str(again[name] or ""),
            str(missed[name] or ""),
        )
        for name in REGISTERED
    ]
    matrix.console.print(
        grid("Deaths", [*columns, ("in a recovery", "right"), ("not reached", "right")], rows)
    )
    streams = Counter(run.schedule.stream for run in matrix.runs)
    died = Counter(run.schedule.stream for run in matrix.runs for each in run.met if each.came)
    matrix.console.print(
        grid(
            "Streams",
            [("stream", "left"), ("schedules", "right"), ("deaths", "right")],
            [(name, str(streams[name]), str(died[name])) for name in sorted(streams)],
        )
    )
    orphans: Counter[str] = sum((run.orphans for run in matrix.runs), Counter())
    told: dict[str, object] = {
        "seed": seed,
        "schedules": len(matrix.runs),
        "wrong": len(matrix.failed),
        "deaths": len(came),
        "at random times": sum(each.death.who == RANDOM for each in came),
        "in a recovery": sum(again.values()),
        "not reached": sum(missed.values()),
        "checkpoints": sum(run.checkpoints for run in matrix.runs),
        "rows compared": sum(run.rows for run in matrix.runs),
        "orphans of the dead": ", ".join(f"{count} {kind}" for kind, count in sorted(orphans.items()))
        or "none",
        "minutes": round(seconds / 60, 1),
    }
    pairs = [
        (name, human_count(value) if isinstance(value, int) else str(value)) for name, value in told.items()
    ]
    matrix.console.print(facts(pairs))
    for failed in matrix.failed:
        matrix.console.print(
            f"wrong: {failed.schedule} (left in {failed.home}): {failed.error[:500]}", markup=False
        )
    return {
        **told,
        "by failpoint": {
            name: {**who[name], "in a recovery": again[name], "not reached": missed[name]}
            for name in REGISTERED
        },
        "failed": [{"schedule": each.schedule.to_json(), "error": each.error} for each in matrix.failed],
    }


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
        Path | None, typer.Option("--report", help="Write the report there, as JSON.")
    ] = None,
) -> None:
    """Kill drivers and workers of streams at every failpoint, and compare every table with what it should hold."""
    os.environ.update(spark_environment())
    known = pairwise() if subset else whole_matrix(seed)
    chosen = [each for each in known if only in (None, each.name)][:schedules]
    if not chosen:
        raise typer.BadParameter(f"there is no schedule '{only}' of seed {seed}")
    place = home or Path(tempfile.mkdtemp(prefix="streamlake-matrix-"))
    matrix = Matrix(place, terminal(), keep=only is not None)
    started = time.monotonic()
    try:
        matrix.run(chosen)
    finally:
        matrix.close()
    told = report(matrix, seed, time.monotonic() - started)
    if json_report is not None:
        json_report.write_text(json.dumps(told, indent=1))
    if home is None and not matrix.failed and only is None:
        shutil.rmtree(place)
    raise typer.Exit(1 if matrix.failed else 0)


if __name__ == "__main__":
    typer.run(main)
