"""One schedule, run: drivers that die one after the other, checks in between, and a last one that finishes.

After each death the table is read by ourselves: it holds whole checkpoints, in order, each once. After the last driver it
holds all of them, and whatever nothing refers to was there before that driver began, from a death that explains it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from streamlake import failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.store import staged_by_all_jobs
from streamlake.errors import TableNotFoundError
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.table.table import Table
from tests.crash.change_log import (
    FileInput,
    KafkaInput,
    Row,
    TableInput,
    committed_ids,
    expected_rows,
    inputs_taken,
)
from tests.crash.schedules import APPEND, DRIVER, PHASES, RANDOM, TASK, WORKER, Death, Schedule
from tests.crash.table_files import DATA, INDEX, kind_of, referenced_files, written_files
from tests.helpers.invariants import check_table
from tests.helpers.processes import has_processes, kill_group, wait_until
from tests.helpers.spark import started_driver

SCRIPT = Path(__file__).with_name("matrix_driver.py")
BACKLOG = 3
"""Checkpoints that wait for each driver."""
LONGEST_RUN_SECONDS = 330
COLUMNS = ("id", "part", "payload")
LEFTOVERS = ("orphan-", "temporary-", "checkpoint-temporary")
"""What `streamlake doctor` may find after deaths: files that nobody needs, Spark's own among them."""
STAGING = ("delta-manifest-written", "committable-recorded")
LEAVES_NO_DATA = (
    *PHASES["start"],
    *PHASES["staged"],
    *PHASES["swapped"],
    *PHASES["end"],
    *PHASES["recovery"],
)
"""A driver that dies here leaves no data file, delete file or Puffin file that is not taken up."""


class Reader(Protocol):
    """Another engine that reads tables."""

    def read(self, location: Path, columns: Sequence[str]) -> pa.Table: ...


@dataclass
class Met:
    """What became of one death: `came` when the failpoint was reached and did what it should."""

    death: Death
    came: bool
    exit_code: int | None
    committed: int
    seconds: float


@dataclass
class ScheduleRun:
    """A schedule at work below `home`; `run` does it all but reading the table by another engine."""

    schedule: Schedule
    home: Path
    input: FileInput | KafkaInput | TableInput
    met: list[Met] = field(default_factory=list)
    rows: int = 0
    checkpoints: int = 0
    orphans: Counter[str] = field(default_factory=Counter)
    _left: dict[str, Death] = field(default_factory=dict)

    @property
    def table(self) -> Path:
        return self.home / "table"

    def run(self) -> None:
        """Raises AssertionError with the first thing that is wrong."""
        for number, death in enumerate(self.schedule.deaths):
            self._die(number, death)
        before = self._files()
        self._start(len(self.schedule.deaths), None)
        table = open_table(str(self.table))
        self.checkpoints = len(committed_ids(table))
        assert inputs_taken(table) == self.input.landed, "the last driver brings all that there is"
        self._check(table)
        assert self._rejected() == self.input.rejected(self.checkpoints), "the rejects are others"
        self.rows = len(expected_rows(table, self.schedule.mode))
        self._check_orphans(table, before)

    def check_by(self, reader: Reader) -> None:
        """What another engine reads is what there should be."""
        found = reader.read(self.table, COLUMNS)
        expected = expected_rows(open_table(str(self.table)), self.schedule.mode, _rows(found))
        assert _rows(found) == expected, f"{type(reader).__name__} reads other rows"

    def _die(self, number: int, death: Death) -> None:
        if death.loses_index:
            shutil.rmtree(self.table / "metadata" / "_index", ignore_errors=True)
        before, started = self._files(), time.monotonic()
        code, came = self._start(number, death)
        for path in self._files() - before:
            self._left[path] = death
        try:
            table = open_table(str(self.table))
        except TableNotFoundError:
            committed = 0
        else:
            committed = self._check(table)
        self.met.append(Met(death, came, code, committed, time.monotonic() - started))

    def _start(self, number: int, death: Death | None) -> tuple[int | None, bool]:
        """Run one driver to its end; its exit code, and whether it met its death."""
        committed = self._committed()
        self.input.land(max(committed, self._done_by_spark()) + BACKLOG)
        expected = self._first_outcome(committed)
        (self.home / "started").unlink(missing_ok=True)
        mark = self.home / f"mark-{number}"
        settings = {
            "mode": self.schedule.mode,
            "format-version": self.schedule.version,
            "foreign": death is not None and death.foreign,
            "ahead": self.schedule.ahead,
            "receipts": str(self.home / f"receipts-{number}"),
            **self.input.to_json(),
        }
        armed = {failpoints.VARIABLE: "" if death is None else self._armed(death, mark)}
        log = self.home / f"driver-{number}"
        armed["STREAMLAKE_MATRIX_DRIVER"] = str(log)
        with started_driver(SCRIPT, self.home, json.dumps(settings), home=log, environment=armed) as process:
            code = self._watched(process, death, mark)
        # Workers are in a group of their own: they outlive their driver for a moment, and write.
        gone = f"STREAMLAKE_MATRIX_DRIVER={log}\0"
        wait_until(lambda: not has_processes(gone), 30, f"the workers of {log} to end")
        if death is None or (death.who == WORKER and code == 0):
            assert code == 0, f"driver {number} of {self.schedule} failed:\n{_end(log)}"
        elif death.who in (DRIVER, TASK, WORKER):
            assert mark.exists() == (code != 0) or death.how == "raise", (
                f"driver {number} of {self.schedule} ended with {code} by itself:\n{_end(log)}"
            )
        self._check_receipts(self.home / f"receipts-{number}", death, committed, expected)
        return code, death is not None and (mark.exists() or (death.who == RANDOM and code != 0))

    def _check_by_doctor(self, orphans: set[str]) -> None:
        """`streamlake doctor` finds these files, and nothing else that is wrong."""
        found = diagnose(str(self.table), checkpoint=str(self.home / "checkpoint"), orphan_age_ms=0)
        listed = {Path(each.path).relative_to(self.table).as_posix() for each in found.orphans}
        assert listed == orphans, f"doctor sees {sorted(listed ^ orphans)[:5]} in another way"
        other = [each for each in found.violations if not each.check.startswith(LEFTOVERS)]
        assert not other, f"doctor finds {other}"

    def _first_outcome(self, committed: int) -> str:
        """How the checkpoint ends that Spark's log asks for next, as what is durable has it now."""
        if self._done_by_spark() < committed:
            return "skipped"
        try:
            table = open_table(str(self.table))
        except TableNotFoundError:
            return "committed"
        staged = {each.identity.checkpoint_id for each in staged_by_all_jobs(table.io, table.locations)}
        return "recovered" if committed in staged else "committed"

    def _done_by_spark(self) -> int:
        """Checkpoints in Spark's commit log."""
        log = self.home / "checkpoint" / "commits"
        return sum(path.name.isdigit() for path in log.iterdir()) if log.exists() else 0

    def _check_receipts(self, path: Path, death: Death | None, committed: int, expected: str) -> None:
        """Nothing was done again that was done; a restart reads no data file to know where keys are."""
        if not path.exists() or self.schedule.ahead > 1:
            return
        receipts = [json.loads(line) for line in path.read_text().splitlines()]
        first = committed - (expected == "skipped")
        assert [each["id"] for each in receipts] == list(range(first, first + len(receipts)))
        outcomes = [each["outcome"] for each in receipts]
        if death is None or not death.loses_index:
            assert outcomes[0] == expected, f"{outcomes[0]}, not {expected}"
        assert set(outcomes[1:]) <= {"committed"}
        if not any(each.foreign or each.loses_index for each in self.schedule.deaths):
            assert all(each["counters"].get("rows-indexed", 0) == 0 for each in receipts)

    def _armed(self, death: Death, mark: Path) -> str:
        if death.who == RANDOM:
            return ""
        worker = f"{death.worker}=kill,once={mark}-worker;" if death.worker else ""
        action = "delay:300" if death.who == TASK else death.how
        # Of each checkpoint the rejects are staged first, and it is the table's own part that deaths are about.
        calls = death.nth * 2 if self.schedule.is_damaged and death.failpoint in STAGING else death.nth
        nth = f",nth={calls}" if calls > 1 else ""
        return f"{worker}{death.failpoint}={action}{nth},once={mark}"

    def _watched(self, process: subprocess.Popen[bytes], death: Death | None, mark: Path) -> int:
        """Wait for the end, or bring it about; whatever the driver started goes with it."""
        deadline = time.monotonic() + LONGEST_RUN_SECONDS
        due: float | None = None
        while process.poll() is None:
            now = time.monotonic()
            assert now < deadline, f"{self.schedule}: a driver ran for {LONGEST_RUN_SECONDS} s"
            if death is not None and death.who == RANDOM and due is None and (self.home / "started").exists():
                due = now + death.seconds
            if (due is not None and now >= due) or (
                death is not None and death.who == TASK and mark.exists()
            ):
                kill_group(process)
            time.sleep(0.01)
        kill_group(process)
        return process.returncode

    def _committed(self) -> int:
        try:
            return len(committed_ids(open_table(str(self.table))))
        except TableNotFoundError:
            return 0

    def _files(self) -> set[str]:
        return written_files(self.table) if self.table.exists() else set()

    def _check(self, table: Table) -> int:
        """The table holds the first so many checkpoints, in order, each once, and nothing else."""
        check_table(table, files_exist=True)
        ids = committed_ids(table)
        assert ids == list(range(len(ids))), f"checkpoints {ids}"
        found = load_table(str(self.table)).scan(columns=COLUMNS).to_arrow()
        expected = expected_rows(table, self.schedule.mode, _rows(found))
        assert _rows(found) == expected, _difference(_rows(found), expected)
        rejected = self._rejected()
        assert len(rejected) == len(set(rejected)), f"rejected twice: {rejected}"
        early = set(rejected) - set(self.input.rejected(len(ids)))
        assert not early, f"rejects of checkpoints that are not committed: {early}"
        return len(ids)

    def _rejected(self) -> list[tuple[int, int]]:
        """Partition and offset of each record in the rejects table, sorted."""
        location = rejects_name(str(self.table))
        try:
            check_table(open_table(location), files_exist=True)
        except TableNotFoundError:
            return []
        found = load_table(location).scan(columns=["partition", "offset"]).to_arrow()
        return sorted(zip(*(found[name].to_pylist() for name in ("partition", "offset")), strict=True))

    def _check_orphans(self, table: Table, before: set[str]) -> None:
        orphans = written_files(self.table) - referenced_files(table, self.table)
        assert orphans <= before, f"the last driver leaves {sorted(orphans - before)[:5]}"
        self.orphans = Counter(map(kind_of, orphans))
        self._check_by_doctor(orphans)
        disturbed = self.schedule.ahead > 1 or any(
            death.foreign or death.loses_index for death in self.schedule.deaths
        )
        for path in orphans:
            death = self._left.get(path)
            assert death is not None, f"nobody has left {path}"
            if kind_of(path) == DATA and not disturbed:
                explained = death.worker or death.who != DRIVER or death.failpoint not in LEAVES_NO_DATA
                assert explained, f"{path} is left by a driver that died after staging: {death}"
        if self.schedule.mode in (APPEND, "equality"):
            assert INDEX not in self.orphans


def _rows(table: pa.Table) -> list[Row]:
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    return sorted(zip(*columns, strict=True))


def _difference(found: list[Row], expected: list[Row]) -> str:
    lost, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return f"{lost.total()} rows are missing, {more.total()} too many: {list(lost)[:3]}, {list(more)[:3]}"


def _end(log: Path) -> str:
    return "\n".join((log / name).read_text(errors="replace")[-4000:] for name in ("stdout", "stderr"))
