"""`streamlake demo`: a stream of changes into a table, with two restarts; every row is checked.

The first restart is at the worst moment: right after a checkpoint's snapshot is in the table and before Spark
has recorded the checkpoint as done. Later the driver is killed while it writes a checkpoint, and another
driver goes on. The table must hold each change once, and the restarts must not make reading more expensive.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake import clock
from streamlake.cli.views.demo_view import DemoView
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.demo.demo_check import ReaderCost, compare, partition_counts, reader_costs
from streamlake.demo.demo_orders import (
    CREATE,
    DELETE,
    KEY,
    UPDATE,
    OrderStream,
    checkpoints_of,
    order_stream,
    write_changes,
)
from streamlake.demo.demo_process import (
    CHECKPOINT,
    DONE,
    READY,
    STOPPED,
    DriverProcess,
    DriverSettings,
    Event,
)
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.tables import load_table

DEFAULT_WAREHOUSE = "streamlake-demo"
TABLE = "orders"


@dataclass
class DemoResult:
    """What the demo did and found; `ok` is False when the table is not what the changes lead to.

    `rows` are the table's, `changes` the stream's. `late_ignored` is what the sink counted.
    `killed_checkpoint` was being written when the driver was killed, and `orphan_files` counts what that left
    behind for orphan removal. In seconds: `start` of the first driver, `restart` of the second, `stream`
    while a query ran.
    """

    table: str
    rows: int = 0
    expected_rows: int = 0
    ok: bool = False
    problems: list[str] = field(default_factory=list)
    missing: int = 0
    extra: int = 0
    different: int = 0
    changes: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    moved: int = 0
    late_ignored: int = 0
    checkpoints: int = 0
    snapshots: int = 0
    snapshot_ids: list[int] = field(default_factory=list)
    restarts: int = 0
    replayed_checkpoints: list[int] = field(default_factory=list)
    recovered_checkpoints: list[int] = field(default_factory=list)
    stopped_checkpoint: int | None = None
    killed_checkpoint: int | None = None
    orphan_files: int = 0
    data_files: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    bytes: int = 0
    amount_sum: str = "0"
    rows_per_partition: dict[str, int] = field(default_factory=dict)
    reads: list[ReaderCost] = field(default_factory=list)
    rows_per_second: float = 0.0
    start_seconds: float = 0.0
    restart_seconds: float = 0.0
    stream_seconds: float = 0.0
    check_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The checkpoints at which the demo stops or kills the driver; of fewer than two it kills none."""

    stop_after: int
    kill_in: int | None

    @staticmethod
    def of(checkpoints: int) -> Plan:
        """The plan for a run of so many checkpoints."""
        stop_after, kill_in = (checkpoints - 1) // 3, checkpoints * 2 // 3
        return Plan(stop_after, kill_in if kill_in > stop_after else None)


def run(*, as_json: bool, warehouse: str | None, rows: int) -> int:
    """Run the demo with `rows` changes; returns 0 only when the table holds exactly what they lead to."""
    view = DemoView(quiet=as_json)
    location = _claim_table(Path(warehouse or DEFAULT_WAREHOUSE))
    work = Path(tempfile.mkdtemp(prefix="streamlake-demo-"))
    try:
        result = _demo(location, work, rows, view)
    except (InvalidOptionError, KeyboardInterrupt):
        # There is no failure to look into, and no table where nothing was started.
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            location.rmdir()
        raise
    except Exception as error:
        raise StreamlakeError(
            f"the demo failed: {error} (Spark's log: {work / 'spark.log'}; the table: {location})"
        ) from error
    shutil.rmtree(work, ignore_errors=True)
    view.finish(asdict(result))
    return 0 if result.ok else 1


def _claim_table(warehouse: Path) -> Path:
    """A new directory for this run's table: `orders`, or `orders-2`, ... beside those of earlier runs."""
    try:
        warehouse.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            location = warehouse.absolute() / (f"{TABLE}-{number}" if number > 1 else TABLE)
            try:
                location.mkdir()
            except FileExistsError:
                continue
            return location
    except OSError as error:
        raise InvalidOptionError(
            f"the warehouse {warehouse} cannot be written ({error.strerror}); choose another with "
            "--warehouse DIR"
        ) from error
    raise AssertionError("unreachable")


def _demo(location: Path, work: Path, rows: int, view: DemoView) -> DemoResult:
    started = clock.monotonic()
    story = _Story(location, work, rows, view)
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(_made, work / "landing", rows)
        stream = story.describe(making.result)
    result = story.result
    check(result, stream)
    result.total_seconds = clock.monotonic() - started
    for name in ("start_seconds", "restart_seconds", "stream_seconds", "check_seconds", "total_seconds"):
        setattr(result, name, round(getattr(result, name), 2))
    return result


def _made(landing: Path, rows: int) -> OrderStream:
    stream = order_stream(rows)
    write_changes(landing, stream.changes)
    return stream


class _Story:
    """Runs the query: one driver until it is killed, another one until the end."""

    def __init__(self, location: Path, work: Path, changes: int, view: DemoView) -> None:
        self.result = DemoResult(table=str(location), changes=changes)
        self._work = work
        self._view = view
        self._plan = Plan.of(checkpoints_of(changes))
        self._committed: set[int] = set()
        self._counters: Counter[str] = Counter()

    def describe(self, made: Any) -> OrderStream:
        """Run the query to its end. `made()` waits for the changes, which are made while Spark starts."""
        result, view = self.result, self._view
        began = clock.monotonic()
        with self._driver(self._plan.stop_after) as driver:
            events = driver.events()
            with view.starting(result.changes):
                _await_ready(events, driver)
                stream: OrderStream = made()
            result.start_seconds = clock.monotonic() - began
            with view.streaming(result.changes, result.table):
                killed = self._follow(driver, events)
                if killed:
                    self._go_on()
        result.checkpoints = len(self._committed)
        result.late_ignored = self._counters["late"]
        result.rows_per_second = round(result.changes / result.stream_seconds)
        return stream

    def _go_on(self) -> None:
        """Start another driver, which continues from what the previous one has left."""
        began = clock.monotonic()
        self.result.restarts += 1
        with self._driver(None) as driver:
            events = driver.events()
            _await_ready(events, driver)
            self.result.restart_seconds = clock.monotonic() - began
            self._follow(driver, events)

    def _driver(self, stop_after: int | None) -> DriverProcess:
        scratch = self._work / "scratch"
        scratch.mkdir(exist_ok=True)
        settings = DriverSettings(
            landing=str(self._work / "landing"),
            checkpoint=str(self._work / "checkpoint"),
            table=self.result.table,
            scratch=str(scratch),
            stop_after=stop_after,
        )
        return DriverProcess(settings, self._work / "spark.log")

    def _follow(self, driver: DriverProcess, events: Iterator[Event]) -> bool:
        """Follow a driver's events until it is done (False) or killed (True)."""
        began = clock.monotonic()
        killed = False
        driver.begin()
        for event in events:
            if event["event"] == CHECKPOINT:
                receipt = _receipt(event)
                self._note(receipt)
                if not killed and self._is_before_the_kill(receipt):
                    files = driver.kill_when_writing(Path(self.result.table) / "data")
                    killed = True
                    self._killed(receipt.checkpoint_id + 1, files)
            elif event["event"] == STOPPED:
                self.result.restarts += 1
                self.result.stopped_checkpoint = event["checkpoint_id"]
                self._view.stopped(event["checkpoint_id"])
            elif event["event"] == DONE:
                break
        else:
            if not killed:
                raise StreamlakeError(f"the driver ended with exit code {driver.exit_code}")
        self.result.stream_seconds += clock.monotonic() - began
        return killed

    def _is_before_the_kill(self, receipt: CommitReceipt) -> bool:
        at = self._plan.kill_in
        first_driver = self.result.stopped_checkpoint is not None and self.result.killed_checkpoint is None
        return first_driver and at is not None and receipt.checkpoint_id >= at - 1

    def _killed(self, checkpoint_id: int, files: int) -> None:
        self.result.killed_checkpoint = checkpoint_id
        self._view.killed(checkpoint_id, files)

    def _note(self, receipt: CommitReceipt) -> None:
        if receipt.outcome is Outcome.SKIPPED:
            self.result.replayed_checkpoints.append(receipt.checkpoint_id)
        elif receipt.outcome is Outcome.RECOVERED:
            self.result.recovered_checkpoints.append(receipt.checkpoint_id)
        self._committed.add(receipt.checkpoint_id)
        self._counters.update(receipt.counters)
        self._view.checkpoint(receipt)


def _await_ready(events: Iterator[Event], driver: DriverProcess) -> None:
    if next(events, {"event": DONE})["event"] != READY:
        raise StreamlakeError(f"the driver could not start, exit code {driver.exit_code}")


def _receipt(event: Event) -> CommitReceipt:
    fields = event["receipt"]
    return CommitReceipt(**{**fields, "outcome": Outcome(fields["outcome"])})


def check(result: DemoResult, stream: OrderStream) -> None:
    """Read the table back, compare it with what the changes lead to, and measure what reading costs."""
    began = clock.monotonic()
    table = load_table(result.table)
    scan = table.scan()
    rows = scan.to_arrow()
    found = compare(rows, stream.final, KEY)
    result.rows, result.expected_rows = rows.num_rows, stream.final.num_rows
    for name, number in asdict(found).items():
        setattr(result, name, number)
        if number:
            result.problems.append(f"{number} rows are {name}")
    result.ok = not result.problems
    result.inserts, result.updates, result.deletes = (stream.kinds[kind] for kind in (CREATE, UPDATE, DELETE))
    result.moved = stream.moved
    # Summed with 38 digits: ten would overflow above some five million orders.
    result.amount_sum = str(pc.sum(rows.column("amount").cast(pa.decimal128(38, 2))).as_py() or 0)
    result.rows_per_partition = partition_counts(rows, "region")
    result.snapshots = len(table.snapshots)
    result.snapshot_ids = [snapshot.snapshot_id for snapshot in table.snapshots]
    live = {os.path.basename(task.data_file.file_path) for task in scan.plan_files()}
    written = {path.name for path in Path(result.table, "data").rglob("*.parquet")}
    result.orphan_files = len(written - live)
    summary = table.current_snapshot.summary if table.current_snapshot is not None else {}
    result.data_files = int(summary.get("total-data-files", 0))
    result.delete_files = int(summary.get("total-delete-files", 0))
    result.deleted_rows = int(summary.get("total-position-deletes", 0))
    result.bytes = int(summary.get("total-files-size", 0))
    result.reads = reader_costs(table)
    result.check_seconds = clock.monotonic() - began
