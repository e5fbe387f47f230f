"""The terminal view of the demo while it runs, and its last page.

Quiet, it prints one JSON object and nothing else.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from streamlake import clock
from streamlake.cli.views.rendering import (
    Grid,
    bar,
    bars,
    facts,
    grid,
    human_count,
    human_size,
    json_text,
    show,
    terminal,
)
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.wording import counted

_BAR, _SHORT_BAR = 24, 12
_WIDE = 110


class DemoView:
    """Shows the demo on a terminal."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or (Console(quiet=True) if quiet else terminal())
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._changes = 0
        self._started = 0.0

    @contextmanager
    def starting(self, changes: int) -> Iterator[None]:
        """Context manager: shown while Spark starts and the changes are made."""
        self.console.print(Text("streamlake demo", style="bold"))
        with self.console.status(f"starting Spark, making {human_count(changes)} changes of orders"):
            yield

    @contextmanager
    def streaming(self, changes: int, table: str) -> Iterator[None]:
        """Context manager: shown while the query runs, a line per checkpoint above a bar."""
        self.console.print(Text(f"upserting {human_count(changes)} changes into {table}"), soft_wrap=True)
        self._started = clock.monotonic()
        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            self._progress = progress
            self._task = progress.add_task("", total=changes, counts=f"0 / {human_count(changes)} changes")
            yield
        self._progress = None

    def checkpoint(self, receipt: CommitReceipt) -> None:
        """Show that a checkpoint has ended."""
        self._changes += receipt.counters.get("changes", 0)
        if self._progress is not None:
            total = self._progress.tasks[0].total or 0
            self._progress.update(
                self._task,
                completed=self._changes,
                counts=f"{human_count(self._changes)} / {human_count(total)} changes",
            )
        self.console.print(_checkpoint_line(receipt, wide=self.console.width >= _WIDE))

    def stopped(self, checkpoint_id: int) -> None:
        """Show that the query was stopped after a commit."""
        self._trouble(
            f"stopped: checkpoint {checkpoint_id} is in the table, and Spark does not know yet; restarting "
            "the query"
        )

    def killed(self, checkpoint_id: int, files: int) -> None:
        """Show that the driver was killed."""
        self._trouble(
            f"kill -9: the driver dies while it writes checkpoint {checkpoint_id}, "
            f"{counted(files, 'file')} begun; starting another one"
        )

    def _trouble(self, text: str) -> None:
        self.console.print(Text(f"  ✗ {text}", style="bold yellow"))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Show the last page: figures, picture, location, next steps."""
        if self.quiet:
            sys.stdout.write(json_text(result) + "\n")
            return
        if self.console.is_terminal:
            # On other outputs the end of the bar has left an empty line.
            self.console.print()
        self.console.print(_verdict(result))
        show(facts(_facts(result)), self.console)
        self.console.print()
        self.console.print(Text("what a reader pays, after each checkpoint", style="bold"))
        self.console.print(_reads(result["reads"], _BAR if self.console.width >= _WIDE else _SHORT_BAR))
        self.console.print()
        self.console.print(Text("orders per partition (region)", style="bold"))
        self.console.print(bars(list(result["rows_per_partition"].items()), width=_BAR))
        self.console.print()
        self.console.print(Text("try next", style="bold"))
        for line in next_steps(result["table"]):
            self.console.print(Text(line, style="cyan"), soft_wrap=True)


def next_steps(table: str) -> list[str]:
    """Commands to try: the key index, the table through streamlake, and through another engine.

    The table's path is a shell variable, so that the others fit into 80 columns.
    """
    return [
        f"T={shlex.quote(table)}",
        'streamlake index status "$T"',
        """python -c "import streamlake as s; print(s.load_table('$T').scan().to_arrow())\"""",
        """duckdb -c "install iceberg; load iceberg; from iceberg_scan('$T') limit 5\"""",
    ]


def _facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("orders", human_count(result["rows"])),
        (
            "changes",
            f"{human_count(result['changes'])}: {counted(result['inserts'], 'insert')}, "
            f"{counted(result['updates'], 'update')} ({human_count(result['moved'])} to another partition), "
            f"{counted(result['deletes'], 'delete')}",
        ),
        (
            "late",
            f"{counted(result['late_ignored'], 'change')} came after a newer one of the same order, ignored",
        ),
        (
            "changes/s",
            f"{human_count(result['rows_per_second'])} ({result['stream_seconds']:.1f} s of streaming; Spark "
            f"took {result['start_seconds']:.1f} s to start"
            + (f", {result['restart_seconds']:.1f} s once more)" if result["restart_seconds"] else ")"),
        ),
        ("checkpoints", f"{result['checkpoints']}; {_again(result)}"),
        (
            "files",
            f"{counted(result['data_files'], 'data file')}, "
            f"{counted(result['delete_files'], 'deletion vector')}, {human_size(result['bytes'])}"
            + (f"; orphans of the killed driver: {result['orphan_files']}" if result["orphan_files"] else ""),
        ),
        ("total", f"{result['total_seconds']:.1f} s"),
        ("table", result["table"]),
    ]


def _verdict(result: Mapping[str, Any]) -> Panel:
    if result["ok"]:
        text = (
            f"all {human_count(result['rows'])} orders are what the changes lead to: 0 missing, 0 extra, 0 "
            "different"
        )
        return Panel(Text(f"✓ {text}", style="green"), expand=False)
    return Panel(Text("✗ " + "; ".join(result["problems"]), style="red"), expand=False)


def _again(result: Mapping[str, Any]) -> str:
    """What the restarts recovered."""
    parts = []
    for key, what in (
        ("replayed_checkpoints", "replayed and skipped"),
        ("recovered_checkpoints", "staged by the killed driver and committed by the next"),
    ):
        if result[key]:
            parts.append(f"{', '.join(map(str, result[key]))} {what}")
    killed = result["killed_checkpoint"]
    if killed is not None and killed not in (
        *result["replayed_checkpoints"],
        *result["recovered_checkpoints"],
    ):
        parts.append(f"{killed} begun twice, committed once")
    return "; ".join(parts) or "none came up again"


def _reads(reads: list[Mapping[str, Any]], width: int) -> Grid:
    """A line per checkpoint: what a full scan has to read, and how long it takes."""
    columns = {
        "checkpoint": "checkpoint",
        "live rows": "live_rows",
        "deleted rows": "deleted_rows",
        "data files": "data_files",
        "deletion vectors": "delete_files",
    }
    slowest = max((read["scan_seconds"] for read in reads), default=0)
    rows: list[tuple[str | Text, ...]] = [
        (
            *(human_count(read[key]) for key in columns.values()),
            Text(bar(read["scan_seconds"], slowest, width), style="cyan"),
            f"{read['scan_seconds']:.3f} s",
        )
        for read in reads
    ]
    headings = [*((heading, "right") for heading in columns), ("", "left"), ("full scan", "right")]
    return grid("", headings, rows)


def _checkpoint_line(receipt: CommitReceipt, *, wide: bool) -> Text:
    head = f"  checkpoint {receipt.checkpoint_id:>2}  "
    if receipt.outcome is Outcome.SKIPPED:
        return Text(
            f"{head}replayed: in the table already, as snapshot {receipt.snapshot_id}; skipped",
            style="yellow",
        )
    if receipt.outcome is Outcome.RECOVERED:
        return Text(
            f"{head}recovered: staged before, committed now, as snapshot {receipt.snapshot_id}",
            style="yellow",
        )
    counts = {
        key: human_count(receipt.counters.get(key, 0)) for key in ("inserts", "updates", "deletes", "late")
    }
    left = "" if wide else "\n" + " " * len(head.rstrip())
    return Text(
        f"{head}{counts['inserts']:>7} new  {counts['updates']:>7} updated  {counts['deletes']:>6} deleted  "
        f"{counts['late']:>5} late{left}  {receipt.data_files:>3} files  {receipt.delete_files:>3} vectors  "
        f"{(receipt.write_ms + receipt.commit_ms) / 1000:>5.2f} s"
    )
