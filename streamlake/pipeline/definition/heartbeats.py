"""Writes the heartbeats of a pipeline's driver into the checkpoint directory, beside the work.

Place in the flow: a thread of its own, from before Spark is asked for to the end of the run. Invariant: a
storage that does not answer, or hangs, never delays or ends the stream; only the last heartbeat is waited
for, and not for long.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from streamlake import clock
from streamlake.checkpoint.heartbeat import (
    BEAT_SECONDS,
    HEARTBEAT_PATH,
    DriverError,
    DriverState,
    Heartbeat,
    TableUpkeep,
    heartbeat_from_text,
    heartbeat_to_bytes,
)
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StreamlakeError
from streamlake.ids import new_uuid
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import table_location

_LOG = logging.getLogger(__name__)
_LAST_WAIT_SECONDS = 10.0
_LONGEST_ERROR = 4_000
_MOST_TABLES = 20


class Heartbeats:
    """Context manager: the driver runs inside it. An error that leaves the block is recorded as the run's
    end, else what `end` was called with (else ENDED).

    `storage` gives the directory's storage, and may raise: then there are no heartbeats.
    """

    def __init__(self, storage: Callable[[], FileIO], location: str, seconds: float = BEAT_SECONDS) -> None:
        self._storage = storage
        self._location = location
        self._seconds = seconds
        now = clock.now_ms()
        self._now = Heartbeat(new_uuid(), DriverState.RUNNING, platform.node(), os.getpid(), now, now)
        self._end = DriverState.ENDED
        self.maintained: Callable[[], tuple[TableUpkeep, ...]] = tuple
        """The maintenance of the tables, asked for at each heartbeat."""
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._has_complained = False
        self._thread = threading.Thread(target=self._beat, name="streamlake-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeats:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_ERROR]
            self._change(state=DriverState.FAILED, error=DriverError(text, clock.now_ms()))
        else:
            self._change(state=self._end if error is None else DriverState.STOPPED)
        self._is_done.set()
        self._thread.join(_LAST_WAIT_SECONDS)

    def finished(self, receipt: CommitReceipt) -> None:
        """A checkpoint has ended."""
        self._change(checkpoint_id=receipt.checkpoint_id, checkpoint_ms=clock.now_ms())

    def waits(self, is_waiting: bool) -> None:
        """Whether Spark waits for its next trigger."""
        self._change(is_waiting=is_waiting)

    def end(self, state: DriverState) -> None:
        """What the run's end will be, unless an error is."""
        self._end = state

    def _change(self, **values: object) -> None:
        with self._lock:
            self._now = replace(self._now, **values)  # type: ignore[arg-type]

    def _beat(self) -> None:
        try:
            io = self._storage().with_fsync(False)
            path = f"{table_location(self._location)}/{HEARTBEAT_PATH}"
        except Exception as error:  # noqa: BLE001  the thread has no caller to raise to
            self._complain(error)
            return
        self._inherit(io, path)
        while not self._is_done.is_set():
            self._write(io, path)
            self._is_done.wait(self._seconds)
        if not self._is_replaced(io, path):
            self._write(io, path)

    def _inherit(self, io: FileIO, path: str) -> None:
        """Take over the last error of the run before."""
        before = _read(io, path)
        if before is not None and self._now.error is None:
            self._change(error=before.error)

    def _is_replaced(self, io: FileIO, path: str) -> bool:
        """Whether a later run has the directory: what this one has to say last is not about it."""
        found = _read(io, path)
        return (
            found is not None and found.run_id != self._now.run_id and found.started_ms > self._now.started_ms
        )

    def _write(self, io: FileIO, path: str) -> None:
        try:
            maintenance = _worth_telling(self.maintained())
            with self._lock:
                self._now = replace(self._now, at_ms=clock.now_ms(), maintenance=maintenance)
                content = heartbeat_to_bytes(self._now)
            io.write_bytes(path, content)
        except Exception as error:  # noqa: BLE001  whatever keeps a heartbeat from being written, the stream goes on
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _LOG.warning(
                "`streamlake status` will not say whether this pipeline runs: its heartbeat cannot be "
                "written into %s: %s",
                self._location,
                error,
            )


def _read(io: FileIO, path: str) -> Heartbeat | None:
    with suppress(StreamlakeError, OSError):
        return heartbeat_from_text(io.read_bytes(path).decode("utf-8", "replace"))
    return None


def _worth_telling(maintained: Iterable[TableUpkeep]) -> tuple[TableUpkeep, ...]:
    """The tables with errors first, then those that were maintained last."""
    found = [each for each in maintained if each.ended_ms is not None or each.due]
    found.sort(key=lambda each: (each.error is None, -(each.ended_ms or 0)))
    return tuple(found[:_MOST_TABLES])
