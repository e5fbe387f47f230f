"""What a pipeline's driver does, by its last heartbeat in the checkpoint directory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.checkpoint_storage import checkpoint_io
from streamlake.checkpoint.heartbeat import (
    HEARTBEAT_PATH,
    SILENT_SECONDS,
    DriverState,
    Heartbeat,
    TableUpkeep,
    heartbeat_from_text,
)
from streamlake.errors import MissingFileError
from streamlake.storage.locations import table_location

_ERROR_KEPT_MS = 24 * 3600 * 1000
_JUST_NOW_MS = 30 * 1000


class RunState(str, Enum):
    """What `status` says of a pipeline.

    IDLE: it runs, and there is nothing new. SILENT: it said that it runs, and has not been heard from since.
    """

    RUNNING = "running"
    IDLE = "idle"
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"
    SILENT = "silent"


@dataclass(frozen=True)
class DriverStatus:
    """The driver's state, where and since when it runs (or ran), and its last heartbeat.

    `error` is the last one of the pipeline, at `error_ms`: of this run when it has FAILED, else of an earlier
    one, no older than a day.
    """

    state: RunState
    host: str
    pid: int
    started_ms: int
    seen_ms: int
    checkpoint_id: int | None = None
    error: str | None = None
    error_ms: int | None = None
    maintenance: tuple[TableUpkeep, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether the driver is at work or waits for some."""
        return self.state in (RunState.RUNNING, RunState.IDLE)


def read_heartbeat(checkpoint: str, catalog: CatalogOption = None) -> Heartbeat | None:
    """The last heartbeat in a checkpoint directory; None where there is none, or a damaged one.

    Raises the errors of reaching the storage.
    """
    io = checkpoint_io(checkpoint, catalog)
    try:
        content = io.read_bytes(f"{table_location(checkpoint)}/{HEARTBEAT_PATH}")
    except MissingFileError:
        return None
    return heartbeat_from_text(content.decode("utf-8", "replace"))


def driver_status(beat: Heartbeat, lag: int | None) -> DriverStatus:
    """What the heartbeat means now. `lag` in offsets (None: not known)."""
    now = clock.now_ms()
    state = RunState(beat.state.value)
    if beat.state is DriverState.RUNNING:
        state = _of_running(beat, lag, now)
    error = beat.error
    if error is not None and state is not RunState.FAILED and now - error.at_ms > _ERROR_KEPT_MS:
        error = None
    return DriverStatus(
        state,
        beat.host,
        beat.pid,
        beat.started_ms,
        beat.at_ms,
        beat.checkpoint_id,
        None if error is None else error.text,
        None if error is None else error.at_ms,
        beat.maintenance,
    )


def _of_running(beat: Heartbeat, lag: int | None, now: int) -> RunState:
    if now - beat.at_ms > SILENT_SECONDS * 1000:
        return RunState.SILENT
    is_recent = beat.checkpoint_ms is not None and now - beat.checkpoint_ms < _JUST_NOW_MS
    nothing_new = lag == 0 if lag is not None else beat.is_waiting and not is_recent
    return RunState.IDLE if nothing_new else RunState.RUNNING
