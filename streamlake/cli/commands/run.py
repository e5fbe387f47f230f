"""`streamlake run`: runs one pipeline file, from its first checkpoint until it ends or is stopped."""

from __future__ import annotations

import sys
from importlib import import_module

from streamlake import clock
from streamlake.cli.views.rendering import human_count, human_duration, human_size
from streamlake.commit.receipt import (
    OTHER_TABLES_COUNTER,
    REJECTED_COUNTER,
    TOMBSTONES_COUNTER,
    CommitReceipt,
    Outcome,
)
from streamlake.pipeline.definition.pipeline_file import KafkaSettings, load_pipeline
from streamlake.pipeline.definition.progress import ProgressState
from streamlake.pipeline.spark.session import started_session
from streamlake.pipeline.spark.without_pandas import decide_about_pandas
from streamlake.read.natural_values import instant
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.wording import counted


def run(path: str) -> int:
    """Run the pipeline in the file; returns the exit code.

    A pipeline without an end that is stopped by SIGINT or SIGTERM has done its work: 0. One that would have
    ended by itself has not: 128 + the signal.
    """
    decide_about_pandas()
    pipeline = load_pipeline(path)
    name = pipeline.name or path
    with started_session(
        name,
        is_lean=isinstance(pipeline.source, KafkaSettings | IcebergSource),
        master=pipeline.spark.master,
        config=pipeline.spark.config,
        log_level=pipeline.spark.log_level,
    ) as started:
        # This takes a second of imports, while the JVM starts.
        running = import_module("streamlake.pipeline.definition.running")
        prepared = running.PipelineRun(pipeline)
        with prepared.heartbeats:
            spark = started()
            with running.stop_on_signals() as stop:
                query = prepared.start(spark)
                say(f"{name}: streaming into {pipeline.sink.table}, checkpoint in {pipeline.checkpoint}")
                state = prepared.watch(query, stop, report)
    say(f"{name}: {_ending(state, is_stopped=stop.is_set)}")
    if stop.signal is not None and pipeline.ends_by_itself:
        return 128 + int(stop.signal)
    return 0


def _ending(state: ProgressState, *, is_stopped: bool) -> str:
    if not is_stopped and not state.checkpoints:
        return "up to date; there is nothing new since the last checkpoint"
    return (
        f"{'stopped' if is_stopped else 'done'}; {counted(state.rows, 'row')} in "
        f"{counted(state.checkpoints, 'checkpoint')}, {human_count(state.rows_per_second)} rows/s"
    )


def report(receipts: list[CommitReceipt], state: ProgressState) -> None:
    """Print one line per checkpoint; the last says how much was read of the whole, where that is known."""
    for number, receipt in enumerate(receipts, 1):
        say(receipt_line(receipt) + (_read_so_far(state) if number == len(receipts) else ""))


def _read_so_far(state: ProgressState) -> str:
    if state.offsets is None or not state.offsets[1]:
        return ""
    read, every = state.offsets
    left = state.seconds_left if read < every else None
    return f"; read {read:,} of {counted(every, 'offset')}" + (
        "" if left is None else f", about {human_duration(left)} left"
    )


def receipt_line(receipt: CommitReceipt) -> str:
    """The outcome of a checkpoint, in one line."""
    table = "" if receipt.table is None else f" of {receipt.table}"
    head = f"checkpoint {receipt.checkpoint_id}{table}: {receipt.outcome.value}"
    if receipt.outcome is Outcome.EMPTY:
        return head + _changes(receipt)
    if receipt.outcome is Outcome.SKIPPED:
        return f"{head}, in the table already" + (
            f" as snapshot {receipt.snapshot_id}" if receipt.snapshot_id else ""
        )
    return (
        f"{head}, {counted(receipt.rows, 'row')}{_changes(receipt)}, {counted(receipt.data_files, 'file')}, "
        f"{human_size(receipt.bytes)}, snapshot {receipt.snapshot_id}, write {receipt.write_ms} ms, commit "
        f"{receipt.commit_ms} ms"
    )


def _changes(receipt: CommitReceipt) -> str:
    """What a checkpoint did to existing rows, and how many changes were too late, rejected, or skipped."""
    named = {name: receipt.counters.get(f"{name}s", 0) for name in ("update", "delete")}
    named["reject"] = receipt.counters.get(REJECTED_COUNTER, 0)
    named["tombstone"] = receipt.counters.get(TOMBSTONES_COUNTER, 0)
    others = {"late": "late", OTHER_TABLES_COUNTER: "of other tables"}
    counts = {name: counted(count, name) for name, count in named.items() if count}
    counts |= {
        name: f"{human_count(receipt.counters[counter])} {name}"
        for counter, name in others.items()
        if receipt.counters.get(counter, 0)
    }
    order = ("update", "delete", "late", "reject", "of other tables", "tombstone")
    shown = ", ".join(counts[name] for name in order if name in counts)
    return f" ({shown})" if shown else ""


def say(text: str) -> None:
    """Print a line with its time (UTC) at once, without buffering."""
    sys.stdout.write(f"{instant(clock.now_ms()):%Y-%m-%d %H:%M:%S} {text}\n")
    sys.stdout.flush()
