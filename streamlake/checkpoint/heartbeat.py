"""The heartbeat of a pipeline's driver: a small file in the checkpoint directory that says whether it runs.

`streamlake run` replaces it every few seconds, and `streamlake status` reads it. It is no part of the
protocol: no stream reads it to decide anything, it is not synced, and a damaged one counts as missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

HEARTBEAT_PATH = "streamlake/heartbeat"
"""Below the checkpoint directory."""
BEAT_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""A driver that says it runs is not heard from any more when its last heartbeat is older than this."""


class DriverState(str, Enum):
    """What a driver says of itself. ENDED: there was nothing left to do."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True)
class DriverError:
    """The error that ended a run, and when."""

    text: str
    at_ms: int


@dataclass(frozen=True)
class TableUpkeep:
    """What there is to say of the maintenance of a table beside the stream.

    The last run, which ended at `ended_ms`, did `actions`, `what` says what became of the table. `due` are
    the actions whose time has come; `waits_for` says why they do not run yet. `error` is the last run's, None
    where all went well.
    """

    table: str
    ended_ms: int | None = None
    actions: tuple[str, ...] = ()
    what: str = ""
    due: tuple[str, ...] = ()
    waits_for: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Heartbeat:
    """One heartbeat.

    `run_id` differs between runs. `at_ms` is when it was written. `is_waiting`: Spark waits for its trigger.
    `checkpoint_id` is the last one that this run has finished, at `checkpoint_ms`. `error` is the last one of
    the pipeline, of an earlier run while the state is not FAILED. `maintenance` has the tables whose
    maintenance has something to say.
    """

    run_id: str
    state: DriverState
    host: str
    pid: int
    started_ms: int
    at_ms: int
    is_waiting: bool = False
    checkpoint_id: int | None = None
    checkpoint_ms: int | None = None
    error: DriverError | None = None
    maintenance: tuple[TableUpkeep, ...] = ()


def heartbeat_to_bytes(beat: Heartbeat) -> bytes:
    """The content of the file: one JSON object."""
    return json.dumps(asdict(beat)).encode()


def heartbeat_from_text(text: str) -> Heartbeat | None:
    """The heartbeat; None for a damaged file, or one of an unknown form."""
    try:
        obj = json.loads(text)
        error = obj["error"]
        return Heartbeat(
            str(obj["run_id"]),
            DriverState(obj["state"]),
            str(obj["host"]),
            int(obj["pid"]),
            int(obj["started_ms"]),
            int(obj["at_ms"]),
            bool(obj["is_waiting"]),
            _optional(obj["checkpoint_id"]),
            _optional(obj["checkpoint_ms"]),
            None if error is None else DriverError(str(error["text"]), int(error["at_ms"])),
            tuple(map(_upkeep, obj.get("maintenance", ()))),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _upkeep(obj: dict[str, Any]) -> TableUpkeep:
    return TableUpkeep(**{**obj, "actions": tuple(obj["actions"]), "due": tuple(obj["due"])})


def _optional(value: object) -> int | None:
    return None if value is None else int(str(value))
