"""The demo's handle on its driver process: starts it, reads its events, kills it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamlake import clock
from streamlake.errors import InvalidOptionError, StreamlakeError

Event = dict[str, Any]

READY, CHECKPOINT, STOPPED, DONE, FAILED = "ready", "checkpoint", "stopped", "done", "failed"
_MODULE = "streamlake.demo.demo_driver"
_POLL_SECONDS = 0.002
_END_SECONDS = 10.0


@dataclass(frozen=True)
class DriverSettings:
    """Where the changes come from and go to; `scratch` takes everything that is temporary.

    `stop_after` is the checkpoint after whose commit, and before Spark has recorded it, the query is stopped
    and started again; None: no such stop.
    """

    landing: str
    checkpoint: str
    table: str
    scratch: str
    stop_after: int | None = None


class DriverProcess:
    """A driver in a process group of its own, with its JVM. `log` takes what Spark writes.

    Use it as a context manager: whatever happens, the group is gone afterwards.
    """

    def __init__(self, settings: DriverSettings, log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, json.dumps(asdict(settings))],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, "TMPDIR": settings.scratch},
                start_new_session=True,
            )
        self._killed = False

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def begin(self) -> None:
        """Let the driver go on after `ready`."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    @property
    def exit_code(self) -> int | None:
        """The exit code, once the driver's output has ended; negative for a signal, None if it hangs."""
        # Its output ends a moment before the process does.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        return self._process.returncode

    def events(self) -> Iterator[Event]:
        """The driver's events until its end.

        Raises its error: InvalidOptionError for what the user can correct.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a driver that was killed may be half a line.
            if not line.endswith(b"\n"):
                return
            event = json.loads(line)
            if event["event"] == FAILED and not self._killed:
                raise (InvalidOptionError if event["usage"] else StreamlakeError)(event["message"])
            yield event

    def kill_when_writing(self, data: Path) -> int:
        """SIGKILL as soon as there is one more file below `data`, or when the driver sends an event first.

        Returns the number of new files.
        """
        before = len(_files(data))
        while len(_files(data)) == before and not self._has_spoken() and self._process.poll() is None:
            clock.sleep(_POLL_SECONDS)
        self.kill()
        return len(_files(data)) - before

    def kill(self) -> None:
        """SIGKILL the driver and its JVM at once."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _has_spoken(self) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])


def _files(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".parquet")]
