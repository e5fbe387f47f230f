"""A run of maintenance in a process of its own, at a low priority and on one core.

Beside a stream it may not be a thread of the driver: what rewrites manifests is Python, so it would take the
interpreter's lock from the threads that talk to Spark, and the number of Arrow's threads belongs to the whole
process. The process ends with its driver, however that ends: it reads its standard input, which closes then.
Invariant: it may be killed at any place, as every action may.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, NoReturn

import pyarrow as pa

from streamlake.maintain.background.run_values import RunReport, RunRequest
from streamlake.maintain.background.table_run import run_maintenance

_NICE = 10
_GRACE_SECONDS = 2.0
_ERROR_LINES = 3


class RunProcess:
    """One run at a time, which `stop` ends from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def __call__(self, request: RunRequest) -> RunReport:
        """Run, and wait for the end. A process that ends without a report gives one with an error."""
        with self._lock:
            if self._is_stopped:
                return RunReport(error="stopped")
            try:
                process = self._process = _started()
            except OSError as error:
                return RunReport(error=f"no process can be started for it: {error}")
        try:
            return _report(process, request)
        finally:
            with self._lock:
                self._process = None

    def stop(self) -> None:
        """End the run that is under way, and let no other begin. Returns when its process is gone."""
        with self._lock:
            self._is_stopped = True
            process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started() -> subprocess.Popen[str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-m", RunProcess.__module__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def _report(process: subprocess.Popen[str], request: RunRequest) -> RunReport:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
    reader.start()
    with contextlib.suppress(OSError):
        process.stdin.write(request.to_text() + "\n")
        process.stdin.flush()
    try:
        # Its standard input stays open: the process ends where that closes.
        line = process.stdout.readline()
        code = process.wait()
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        reader.join()
    try:
        return RunReport.from_text(line)
    except (ValueError, TypeError, KeyError):
        said = f": {' '.join(errors)}" if errors else ""
        return RunReport(error=f"its process has ended with code {code}{said}")


def _drain(stream: IO[str], last: list[str]) -> None:
    """Read all of a stream, and keep its last lines."""
    with stream:
        for line in stream:
            last.append(line.strip())
            del last[:-_ERROR_LINES]


def _main() -> None:
    signal.signal(signal.SIGTERM, _ended)
    # Ctrl-C reaches every process of the terminal; this one ends when its driver says so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    line = sys.stdin.readline()
    threading.Thread(target=_end_with, args=(sys.stdin.read,), daemon=True).start()
    pa.set_cpu_count(1)
    sys.stdout.write(run_maintenance(RunRequest.from_text(line)).to_text() + "\n")
    sys.stdout.flush()
    # Not through the interpreter's end, which would wait for the thread that reads.
    os._exit(0)


def _end_with(wait: Callable[[], str]) -> None:
    wait()
    os._exit(1)


def _ended(*_: object) -> NoReturn:
    raise SystemExit(1)


if __name__ == "__main__":
    _main()
