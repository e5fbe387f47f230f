"""The soak: `python -m tests.crash.soak [--minutes 30] [--seed N] [--mode position] [--rejects]`.

A stream into one table, whose driver is killed every few seconds, loses a worker, or is stopped and comes back after its
successor has committed; beside it another writer appends, compacts and expires with Iceberg's own runtime. After every
death, and at the end, the table is compared row by row with what it must hold. With `--rejects` the stream comes from a
Kafka broker, one record in a hundred is damaged, and the rejects table is compared as well. The exit code is 1 when
something was wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from streamlake import load_table
from streamlake.cli.views.rendering import facts, human_count
from streamlake.errors import TableNotFoundError
from tests.crash.change_log import PARTS, ROWS, FileInput, KafkaInput
from tests.crash.soak_table import (
    LANDING,
    NEIGHBOUR_LOG,
    STARTED,
    STOP,
    Model,
    check,
    check_rejects,
    last_checkpoint,
    rejected,
    table_location,
)
from tests.helpers.broker import KafkaBroker
from tests.helpers.processes import kill_group, tail
from tests.helpers.spark import spark_environment, started_driver

DRIVER = Path(__file__).with_name("soak_driver.py")
NEIGHBOUR = Path(__file__).with_name("soak_neighbour.py")
BACKLOG = 12
LANDING_SECONDS = 0.4
LONGEST_START_SECONDS = 300
LONGEST_LIFE_SECONDS = 12
ZOMBIE_SECONDS = 60
COMMITS_OF_A_SUCCESSOR = 2
WORKER_COMMAND = b"pyspark.worker"
"""In the command line of whatever daemon forks workers, and so of its workers."""


@dataclass
class Soak:
    """One soak at work below `home`; with a `broker` from a topic with damaged records, else from files."""

    home: Path
    mode: str
    version: int
    draw: random.Random
    console: Console
    broker: KafkaBroker | None = None
    told: Counter[str] = field(default_factory=Counter)
    zombies: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _drivers: int = 0

    def __post_init__(self) -> None:
        self._input: FileInput | KafkaInput = FileInput(self.home / LANDING, self.mode)
        if self.broker is not None:
            topic = self.broker.create_topic(partitions=PARTS)
            self._input = KafkaInput(self.broker, topic, self.mode, damaged=True)
        self._model = Model(self.mode, rejects=self.broker is not None)
        self._log = self.home / NEIGHBOUR_LOG
        self._ended = threading.Event()

    def run(self, seconds: float, seed: int) -> None:
        """Drivers that die until the time is over, then one that finishes, then the last look."""
        self._input.land(BACKLOG)
        landing = threading.Thread(target=self._land, daemon=True)
        deadline = time.monotonic() + seconds
        with ExitStack() as running:
            running.callback(self._ended.set)
            landing.start()
            neighbour: subprocess.Popen[bytes] | None = None
            while time.monotonic() < deadline and not self.wrong:
                self._one_driver()
                self._look()
                if neighbour is None and self.checkpoint() >= 0:
                    neighbour = running.enter_context(
                        started_driver(NEIGHBOUR, self.home, seed, home=self.home / "neighbour")
                    )
                self._say(deadline - time.monotonic())
            self._ended.set()
            landing.join()
            (self.home / STOP).touch()
            if neighbour is not None and neighbour.wait(LONGEST_START_SECONDS) != 0:
                self.wrong.append(f"the neighbour ended: {tail(self.home / 'neighbour' / 'stderr')}")
        self._finish()
        self._look(done=not self.wrong)

    def checkpoint(self) -> int:
        """The last checkpoint in the table."""
        try:
            return last_checkpoint(load_table(str(table_location(self.home))).properties)
        except TableNotFoundError:
            return -1

    def _land(self) -> None:
        while not self._ended.wait(LANDING_SECONDS):
            self._input.land(min(self._input.landed + 1, self.checkpoint() + 1 + BACKLOG))

    def _one_driver(self) -> None:
        how = self.draw.choices(("kill", "worker", "zombie"), (6, 2, 2))[0]
        self._drivers += 1
        log = self.home / f"driver-{self._drivers}"
        with self._driver(log) as process:
            early = self.draw.random() < 0.15
            if not early and not self._until(process, lambda: (self.home / STARTED).exists()):
                self.wrong.append(f"driver {self._drivers} does not start:\n{tail(log / 'stderr')}")
                return
            life = self.draw.uniform(0, LONGEST_LIFE_SECONDS)
            if self._until(process, lambda: False, life) or process.poll() is not None:
                self.wrong.append(f"driver {self._drivers} ended by itself:\n{tail(log / 'stderr')}")
                return
            if how == "zombie" and not early:
                self._come_back(process, log)
            else:
                if how == "worker":
                    self._kill_worker(process)
                    self._until(process, lambda: False, self.draw.uniform(0, LONGEST_LIFE_SECONDS))
                    if process.poll() is not None:
                        self.wrong.append(
                            f"driver {self._drivers} lost a worker and ended:\n{tail(log / 'stderr')}"
                        )
                        return
                self.told["drivers killed"] += 1
                kill_group(process)

    def _driver(self, log: Path, *, finish: bool = False) -> Any:
        (self.home / STARTED).unlink(missing_ok=True)
        settings = {
            "mode": self.mode,
            "format-version": self.version,
            "finish": finish,
            **self._input.to_json(),
        }
        return started_driver(DRIVER, self.home, json.dumps(settings), home=log)

    def _come_back(self, zombie: subprocess.Popen[bytes], log: Path) -> None:
        """Stop a driver, let a successor commit, and wake it: it must end, and the table must not see it."""
        os.killpg(zombie.pid, signal.SIGSTOP)
        self.told["drivers stopped"] += 1
        self._drivers += 1
        with self._driver(self.home / f"driver-{self._drivers}") as successor:
            reached = self.checkpoint() + COMMITS_OF_A_SUCCESSOR
            if not self._until(successor, lambda: self.checkpoint() >= reached):
                self.wrong.append(
                    f"the successor {self._drivers} does not commit:\n{tail(self.home / f'driver-{self._drivers}' / 'stderr')}"
                )
            os.killpg(zombie.pid, signal.SIGCONT)
            if self._until(zombie, lambda: zombie.poll() is not None, ZOMBIE_SECONDS, ends=True):
                self.zombies[_last_words(log)] += 1
            else:
                self.wrong.append(f"the driver of {log} goes on beside its successor")
            kill_group(zombie)
            self.told["drivers killed"] += 1
            kill_group(successor)

    def _kill_worker(self, process: subprocess.Popen[bytes]) -> None:
        """Spark starts them with the first task that needs one, and again when they were idle: wait for one."""
        found: list[int] = []

        def one_is_there() -> bool:
            found[:] = _workers(process.pid)
            return bool(found)

        if self._until(process, one_is_there):
            with suppress(ProcessLookupError):
                os.kill(self.draw.choice(found), signal.SIGKILL)
                self.told["workers killed"] += 1
        elif process.poll() is None:
            self.wrong.append(f"driver {self._drivers} has no Python worker that could be killed")

    def _until(
        self,
        process: subprocess.Popen[bytes],
        condition: Callable[[], bool],
        seconds: float = LONGEST_START_SECONDS,
        *,
        ends: bool = False,
    ) -> bool:
        """Wait for the condition; False when the time is over, or when the process ends first."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            if process.poll() is not None and not ends:
                return False
            time.sleep(0.05)
        return False

    def _finish(self) -> None:
        """A last driver brings what is left."""
        if self.wrong:
            return
        log = self.home / "driver-last"
        with self._driver(log, finish=True) as process:
            if process.wait(LONGEST_START_SECONDS * 3) != 0:
                self.wrong.append(f"the last driver failed:\n{tail(log / 'stderr')}")

    def _look(self, *, done: bool = False) -> None:
        if self.checkpoint() < 0:
            return
        try:
            found = rejected(self.home)
            difference = check(self.home, self._model, self._log)
            if self.broker is not None:
                check_rejects(self.home, self._model, found, done=done)
                self.told["rejects"] = len(found)
            landed = self._input.landed * ROWS
            assert not done or sum(self._model.taken) == landed, (
                f"{sum(self._model.taken)} changes of {landed} are in the table in the end"
            )
        except AssertionError as error:
            self.wrong.append(str(error))
            return
        self.told["looks"] += 1
        if difference:
            self.told["rows lost"] += difference.missing.total()
            self.told["rows too many"] += difference.extra.total()
            self.wrong.append(
                f"at checkpoint {self._model.checkpoint}: {difference.missing.total()} rows are missing, such as "
                f"{list(difference.missing)[:3]}; {difference.extra.total()} too many, such as {list(difference.extra)[:3]}"
            )

    def _say(self, left: float) -> None:
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.told.items()))
        self.console.print(f"{max(left, 0) / 60:5.1f} min left: checkpoint {self._model.checkpoint}, {told}")

    def report(self, seed: int, seconds: float) -> dict[str, object]:
        lines = (
            [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []
        )
        neighbour = Counter(
            line["what"] + (" done" if line["error"] is None else " refused") for line in lines
        )
        return {
            "seed": seed,
            "mode": self.mode,
            "format version": self.version,
            "minutes": round(seconds / 60, 1),
            **{name: self.told[name] for name in ("drivers killed", "workers killed", "drivers stopped")},
            "stopped drivers ended with": dict(self.zombies),
            "neighbour": dict(sorted(neighbour.items())),
            "checkpoints": self._model.checkpoint + 1,
            "changes": sum(self._model.taken),
            "rejected records": self.told["rejects"] if self.broker is not None else None,
            "live rows": len(self._model.rows),
            "looks at the table": self.told["looks"],
            "rows lost": self.told["rows lost"],
            "rows too many": self.told["rows too many"],
            "wrong": self.wrong,
        }


def _workers(driver: int) -> list[int]:
    """Python workers of a driver. Spark puts them into a process group of their own, with the daemon that forks them."""
    parents: dict[int, int] = {}
    python: set[int] = set()
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if WORKER_COMMAND in (entry / "cmdline").read_bytes():
                python.add(pid)
        except (ValueError, OSError):
            continue
    return [pid for pid in python if parents[pid] in python and _descends(pid, driver, parents)]


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parents.get(pid, 0)
    return False


def _last_words(log: Path) -> str:
    """The class of the error that ended a driver."""
    lines = (log / "stderr").read_text(errors="replace").splitlines()
    for line in reversed(lines):
        name = line.split(":", 1)[0]
        if name.startswith(("streamlake.errors.", "pyspark.errors.")):
            return name.rpartition(".")[2]
    return "no error" if not lines else lines[-1][:100]


def main(
    minutes: Annotated[float, typer.Option(help="For how long drivers die.")] = 30,
    seed: Annotated[
        int, typer.Option(help="What is drawn follows from it; what time makes of it does not.")
    ] = 1,
    mode: Annotated[str, typer.Option(help="append, position, equality or copy-on-write.")] = "position",
    format_version: Annotated[int, typer.Option(min=2, max=3)] = 3,
    rejects: Annotated[
        bool, typer.Option("--rejects", help="From Kafka, with damaged records that go to the rejects table.")
    ] = False,
    home: Annotated[
        Path | None, typer.Option(help="Where all goes (default: a temporary directory).")
    ] = None,
    json_report: Annotated[
        Path | None, typer.Option("--report", help="Write the report there, as JSON.")
    ] = None,
) -> None:
    """Kill the drivers of one stream for a long time, beside another writer, and compare the table all the while."""
    os.environ.update(spark_environment())
    place = home or Path(tempfile.mkdtemp(prefix="streamlake-soak-"))
    place.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    started = time.monotonic()
    with ExitStack() as running:
        broker = running.enter_context(KafkaBroker(place / "kafka")) if rejects else None
        soak = Soak(place, mode, format_version, random.Random(seed), console, broker)
        soak.run(minutes * 60, seed)
    told = soak.report(seed, time.monotonic() - started)
    console.print(
        facts([(name, human_count(v) if isinstance(v, int) else str(v)) for name, v in told.items()])
    )
    if json_report is not None:
        json_report.write_text(json.dumps(told, indent=1) + "\n")
    if home is None and not soak.wrong:
        shutil.rmtree(place)
    raise typer.Exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    typer.run(main)
