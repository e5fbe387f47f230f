"""What the demo shows while it runs, and its last page. Quiet, it prints one JSON object and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from streamlake import clock
from streamlake.cli.rendering import bars, facts, human_count, human_size, json_text, terminal
from streamlake.commit.receipt import CommitReceipt, Outcome


class DemoView:
    """The demo's face. `checkpoint` may be called from another thread."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or (Console(quiet=True) if quiet else terminal())
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._rows = 0
        self._started = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def starting(self, rows: int) -> Iterator[None]:
        """While Spark starts and the events are made."""
        self.console.print(Text("streamlake demo", style="bold"))
        with self.console.status(f"starting Spark, making {human_count(rows)} events"):
            yield

    @contextmanager
    def streaming(self, rows: int, table: str) -> Iterator[None]:
        """While the query runs: a line per checkpoint above a bar."""
        self.console.print(Text(f"streaming {human_count(rows)} events into {table}"))
        self._started = clock.monotonic()
        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            self._progress = progress
            self._task = progress.add_task("", total=rows, counts=f"0 / {human_count(rows)} rows")
            yield
        self._progress = None

    def checkpoint(self, receipt: CommitReceipt) -> None:
        """A checkpoint has ended."""
        with self._lock:
            self._rows += receipt.rows
            seconds = max(clock.monotonic() - self._started, 1e-9)
            if self._progress is not None:
                total = self._progress.tasks[0].total or 0
                self._progress.update(
                    self._task,
                    completed=self._rows,
                    counts=f"{human_count(self._rows)} / {human_count(total)} rows  "
                    f"{human_count(self._rows / seconds)} rows/s",
                )
            self.console.print(_checkpoint_line(receipt))

    def crashed(self, checkpoint_id: int) -> None:
        """The demo has thrown its crash."""
        self.console.print(
            Text(
                f"  ✗ crash! snapshot in the table, checkpoint {checkpoint_id} not yet noted by Spark; "
                "restarting from the checkpoint",
                style="bold yellow",
            )
        )

    def finish(self, result: Mapping[str, Any]) -> None:
        """The last page: figures, picture, location, what to try next."""
        if self.quiet:
            sys.stdout.write(json_text(result) + "\n")
            return
        self.console.print()
        self.console.print(_verdict(result))
        self.console.print(
            facts(
                [
                    ("rows", human_count(result["rows"])),
                    (
                        "rows/s",
                        f"{human_count(result['rows_per_second'])} ({result['stream_seconds']:.1f} s of streaming, "
                        f"restart included; Spark took {result['start_seconds']:.1f} s to start)",
                    ),
                    ("checkpoints", f"{result['checkpoints']}, replayed: {_replayed(result)}"),
                    ("snapshots", human_count(result["snapshots"])),
                    ("files", f"{human_count(result['data_files'])}, {human_size(result['bytes'])}"),
                    ("table", result["table"]),
                ]
            )
        )
        self.console.print()
        self.console.print(Text("rows per partition (day, category)", style="bold"))
        self.console.print(bars(list(result["rows_per_partition"].items()), width=30))
        self.console.print()
        self.console.print(Text("try next", style="bold"))
        for line in next_steps(result["table"]):
            self.console.print(Text(line, style="cyan"), soft_wrap=True)


def next_steps(table: str) -> list[str]:
    """Three lines to try: look at it, read it with streamlake, read it with another engine."""
    return [
        f"streamlake inspect {table} snapshots",
        f"""python -c "from streamlake import load_table; print(load_table('{table}').scan().to_arrow())\"""",
        f"""duckdb -c "install iceberg; load iceberg; from iceberg_scan('{table}') limit 5\"""",
    ]


def _verdict(result: Mapping[str, Any]) -> Panel:
    if result["ok"]:
        text = (
            f"every one of {human_count(result['rows'])} events is in the table exactly once; "
            f"amounts add up to {result['amount_sum']}"
        )
        return Panel(Text(f"✓ {text}", style="green"), expand=False)
    return Panel(Text("✗ " + "; ".join(result["problems"]), style="red"), expand=False)


def _replayed(result: Mapping[str, Any]) -> str:
    replayed = result["replayed_checkpoints"]
    return ", ".join(map(str, replayed)) + " (and skipped)" if replayed else "none"


def _checkpoint_line(receipt: CommitReceipt) -> Text:
    head = f"  checkpoint {receipt.checkpoint_id:>2}  "
    if receipt.outcome is Outcome.SKIPPED:
        return Text(
            f"{head}replayed: in the table already, as snapshot {receipt.snapshot_id}; skipped",
            style="yellow",
        )
    return Text(
        f"{head}{human_count(receipt.rows):>10} rows  {receipt.data_files:>3} files  "
        f"write {receipt.write_ms / 1000:.2f} s  commit {receipt.commit_ms / 1000:.2f} s  "
        f"snapshot {receipt.snapshot_id}"
    )
