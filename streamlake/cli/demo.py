"""`streamlake demo`: the main job on made-up events, with a crash in the middle, and every row checked at the end.

The crash is the nastiest one: right after a checkpoint's snapshot is in the table and before Spark has noted that the
checkpoint is done. The restarted query therefore replays that checkpoint, and the table must not hold it twice.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamlake import clock
from streamlake.cli.demo_events import SCHEMA, EventTruth, truth_of, write_events
from streamlake.cli.demo_view import DemoView
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.pipeline.running import POLL_SECONDS
from streamlake.pipeline.session import spark_session, stderr_to
from streamlake.pipeline.sink import IcebergSink
from streamlake.read.metadata_tables import partition_rows
from streamlake.tables import load_table

DEFAULT_WAREHOUSE = "streamlake-demo"
FILES_PER_CHECKPOINT = 2
PARTITION_BY = ("day(ts)", "category")
# A JVM that lives for half a minute on few cores is better off with the quick compiler and the simple collector.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
AVAILABLE_NOW = {"availableNow": True}


@dataclass
class DemoResult:
    """What the demo did and found; `ok` is False when the table is not what the events say."""

    table: str
    rows: int = 0
    expected_rows: int = 0
    ok: bool = False
    problems: list[str] = field(default_factory=list)
    checkpoints: int = 0
    snapshots: int = 0
    snapshot_ids: list[int] = field(default_factory=list)
    restarts: int = 0
    replayed_checkpoints: list[int] = field(default_factory=list)
    data_files: int = 0
    bytes: int = 0
    amount_sum: str = "0"
    rows_per_partition: dict[str, int] = field(default_factory=dict)
    rows_per_second: float = 0.0
    stream_seconds: float = 0.0
    start_seconds: float = 0.0
    total_seconds: float = 0.0


class SimulatedCrashError(Exception):
    """Thrown by the demo into its own query."""


def run(*, as_json: bool, warehouse: str | None, rows: int) -> int:
    """Run the demo; returns 0 only when the table holds exactly the generated events."""
    view = DemoView(quiet=as_json)
    location = _claim_table(Path(warehouse or DEFAULT_WAREHOUSE))
    work = Path(tempfile.mkdtemp(prefix="streamlake-demo-"))
    try:
        result = _demo(location, work, rows, view)
    except InvalidOptionError:
        # Nothing was started, so there is nothing to look at.
        shutil.rmtree(work, ignore_errors=True)
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
    """A new directory for this run's table: `events`, or `events-2`, ... where earlier runs have left theirs."""
    try:
        warehouse.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            location = warehouse.absolute() / (f"events-{number}" if number > 1 else "events")
            try:
                location.mkdir()
            except FileExistsError:
                continue
            return location
    except OSError as error:
        raise InvalidOptionError(
            f"the warehouse {warehouse} cannot be written ({error.strerror}); choose another with --warehouse DIR"
        ) from error
    raise AssertionError("unreachable")


def _demo(location: Path, work: Path, rows: int, view: DemoView) -> DemoResult:
    started = clock.monotonic()
    result = DemoResult(table=str(location))
    landing = work / "landing"
    with ThreadPoolExecutor(1) as pool, view.starting(rows):
        writing = pool.submit(write_events, landing, rows)
        with stderr_to(work / "spark.log"):
            spark = spark_session("streamlake demo", java_options=JAVA_OPTIONS)
        truth = writing.result()
    try:
        result.start_seconds = clock.monotonic() - started
        streaming = clock.monotonic()
        with view.streaming(rows, str(location)):
            _stream(spark, result, landing, work / "checkpoint", view)
        result.stream_seconds = clock.monotonic() - streaming
        _check(result, truth)
    finally:
        spark.stop()
    result.rows_per_second = round(result.rows / result.stream_seconds)
    result.total_seconds = clock.monotonic() - started
    for name in ("start_seconds", "stream_seconds", "total_seconds"):
        setattr(result, name, round(getattr(result, name), 2))
    return result


def _stream(spark: SparkSession, result: DemoResult, landing: Path, checkpoint: Path, view: DemoView) -> None:
    """First half, crash, restart from the checkpoint, rest."""
    files = len(list(landing.glob("part-*.parquet")))
    checkpoints = -(-files // FILES_PER_CHECKPOINT)
    crash_at = checkpoints // 2 - 1

    def note(receipt: CommitReceipt) -> None:
        if receipt.outcome is Outcome.SKIPPED:
            result.replayed_checkpoints.append(receipt.checkpoint_id)
        else:
            result.checkpoints += 1
            result.data_files += receipt.data_files
            result.bytes += receipt.bytes
        view.checkpoint(receipt)

    def note_and_crash(receipt: CommitReceipt) -> None:
        note(receipt)
        if receipt.checkpoint_id == crash_at:
            raise SimulatedCrashError(f"after checkpoint {crash_at}")

    try:
        _run_query(spark, landing, checkpoint, result.table, note_and_crash)
    except StreamingQueryException as error:
        if SimulatedCrashError.__name__ not in str(error):
            raise
        result.restarts += 1
        view.crashed(crash_at)
        _run_query(spark, landing, checkpoint, result.table, note)


def _run_query(
    spark: SparkSession,
    landing: Path,
    checkpoint: Path,
    table: str,
    on_commit: Callable[[CommitReceipt], None],
) -> None:
    events = spark.readStream.schema(from_arrow_schema(SCHEMA)).option(
        "maxFilesPerTrigger", FILES_PER_CHECKPOINT
    )
    sink = IcebergSink(table, create=True, partition_by=PARTITION_BY, pipeline="demo", on_commit=on_commit)
    query = sink.start(
        events.parquet(str(landing)), checkpoint_location=str(checkpoint), trigger=AVAILABLE_NOW
    )
    try:
        # Short waits, so that Ctrl-C is noticed.
        while not query.awaitTermination(POLL_SECONDS):
            pass
    finally:
        query.stop()


def _check(result: DemoResult, truth: EventTruth) -> None:
    """Read the table back and compare it with the truth."""
    table = load_table(result.table)
    columns = ["event_id", "category", "amount"]
    found = truth_of(table.scan(columns=columns).to_arrow())
    result.rows, result.expected_rows = found.rows, truth.rows
    result.amount_sum = str(found.amount)
    result.snapshots = len(table.snapshots)
    result.snapshot_ids = [snapshot.snapshot_id for snapshot in table.snapshots]
    result.rows_per_partition = {
        " ".join(map(str, row["partition"].values())): row["record_count"]
        for row in sorted(
            partition_rows(table.table, table.current_snapshot),
            key=lambda row: tuple(map(str, row["partition"].values())),
        )
    }
    for name, expected in asdict(truth).items():
        got = getattr(found, name)
        if got != expected:
            result.problems.append(f"{name} is {got}, but the events say {expected}")
    result.ok = not result.problems
