"""Progress of a long command, on stderr: a moving line in a terminal, else a line at times.

Lines have their time, what is done of how much, and how long the rest of the step takes at its pace, as far
as these are known. Invariant: stdout is left to the command's result.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from streamlake import clock
from streamlake.cli.views.rendering import human_duration
from streamlake.on_progress import OnProgress
from streamlake.read.natural_values import instant
from streamlake.wording import counted

_POLL_SECONDS = 0.3
_LINE_SECONDS = 10.0


class _Shown(Protocol):
    """What is shown. `unit` is one of what is counted."""

    unit: str

    def now(self) -> tuple[str, int, int]:
        """The step, how much of it is done, and its total (0: not known)."""
        ...


class TaskProgress:
    """What is being done: a text, and once Spark works, its finished tasks."""

    unit = "task"

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


class _StepProgress:
    """What an OnProgress was called with last."""

    unit = ""

    def __init__(self, text: str) -> None:
        self._text = self._step = text
        self._done = self._total = 0

    def on_progress(self, step: str, done: int, total: int | None) -> None:
        self._step, self._done, self._total = f"{self._text}: {step}", done, total or 0

    def now(self) -> tuple[str, int, int]:
        return self._step, self._done, self._total


class _Pace:
    """How long the rest of a step takes at its pace so far."""

    def __init__(self) -> None:
        self._step: tuple[str, int] | None = None
        self._began = self._first = 0.0

    def seconds_left(self, text: str, done: int, total: int) -> float | None:
        """None where that is not known."""
        now = clock.monotonic()
        if self._step != (text, total) or done < self._first:
            self._step, self._began, self._first = (text, total), now, done
        if done <= self._first or now <= self._began:
            return None
        return (total - done) * (now - self._began) / (done - self._first)


@contextmanager
def task_progress(text: str) -> Iterator[TaskProgress]:
    """Context manager: shows the progress of a command that Spark works for until its end.

    The first word comes at once, before Spark is started, which takes seconds.
    """
    progress = TaskProgress(text)
    with _showing(progress, begins_at_once=True):
        yield progress


@contextmanager
def step_progress(text: str) -> Iterator[OnProgress]:
    """Context manager: shows the steps of a command until its end, if that takes longer than a moment."""
    progress = _StepProgress(text)
    with _showing(progress, begins_at_once=False):
        yield progress.on_progress


@contextmanager
def _showing(progress: _Shown, *, begins_at_once: bool) -> Iterator[None]:
    console = Console(stderr=True)
    done, pace = threading.Event(), _Pace()
    if not console.is_terminal:
        if begins_at_once:
            _line(progress, pace)
        with _thread(done, _lines, progress, done, pace):
            yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(progress.now()[0])
        with _thread(done, _bar, progress, done, pace, bars, task):
            yield


@contextmanager
def _thread(done: threading.Event, target: Any, *arguments: Any) -> Iterator[None]:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bar(progress: _Shown, done: threading.Event, pace: _Pace, bars: Progress, task: Any) -> None:
    while True:
        text, finished, total = progress.now()
        bars.update(
            task,
            description=_description(text, finished, total, progress.unit, pace),
            completed=finished,
            total=total or None,
        )
        if done.wait(_POLL_SECONDS):
            return


def _lines(progress: _Shown, done: threading.Event, pace: _Pace) -> None:
    while not done.wait(_LINE_SECONDS):
        _line(progress, pace)


def _line(progress: _Shown, pace: _Pace) -> None:
    text, finished, total = progress.now()
    shown = _description(text, finished, total, progress.unit, pace)
    sys.stderr.write(f"{instant(clock.now_ms()):%H:%M:%S} {shown}\n")
    sys.stderr.flush()


def _description(text: str, done: int, total: int, unit: str, pace: _Pace) -> str:
    left = pace.seconds_left(text, done, total)
    if not total:
        return f"{text}, {done:,} so far" if done else text
    of_all = f"{total:,}" if not unit else f"{counted(total, unit)} of this step"
    return f"{text}: {done:,} of {of_all}" + (
        "" if left is None or done >= total else f", about {human_duration(left)} left"
    )
