"""Progress of a command that Spark works for, on stderr: a moving line in a terminal, else a line at times.

The first word comes at once, before Spark is started, which takes seconds. Invariant: stdout is left to the
command's result.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from streamlake import clock
from streamlake.wording import counted

_POLL_SECONDS = 0.3
_LINE_SECONDS = 10.0


class TaskProgress:
    """What is being done: a text, and once Spark works, its finished tasks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._session: Any = None

    def say(self, text: str, session: Any = None) -> None:
        """Go on to another step; with a session, its tasks are counted from here on."""
        self._text, self._session = text, session

    def now(self) -> tuple[str, int, int]:
        """The step, the finished tasks of the stages that run, and all of their tasks (0: none run)."""
        text, session = self._text, self._session
        if session is None:
            return text, 0, 0
        tracker = session.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return text, sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def task_progress(text: str) -> Iterator[TaskProgress]:
    """Context manager: shows the progress, beginning with `text`, until its end."""
    console = Console(stderr=True)
    progress = TaskProgress(text)
    done = threading.Event()
    if not console.is_terminal:
        _line(progress)
        thread = threading.Thread(target=_lines, args=(progress, done), daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            done.set()
            thread.join()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        thread = threading.Thread(target=_bar, args=(progress, done, bars, bars.add_task(text)), daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            done.set()
            thread.join()


def _bar(progress: TaskProgress, done: threading.Event, bars: Progress, task: Any) -> None:
    while True:
        text, finished, total = progress.now()
        shown = f"{text}: {finished:,} of {counted(total, 'task')}" if total else text
        bars.update(task, description=shown, completed=finished, total=total or None)
        if done.wait(_POLL_SECONDS):
            return


def _lines(progress: TaskProgress, done: threading.Event) -> None:
    while not done.wait(_LINE_SECONDS):
        _line(progress)


def _line(progress: TaskProgress) -> None:
    text, finished, total = progress.now()
    at = datetime.fromtimestamp(clock.now_ms() / 1_000, timezone.utc)
    shown = f": {finished:,} of {counted(total, 'task')} of this step" if total else ""
    sys.stderr.write(f"{at:%H:%M:%S} {text}{shown}\n")
    sys.stderr.flush()
