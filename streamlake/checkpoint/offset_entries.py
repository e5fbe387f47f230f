"""The offset log of the direct path: Kafka offsets for the ticks in Spark's own offset log.

Spark runs the direct path on ticks, its own source `rate-micro-batch`: checkpoint N ends at tick N + 1, which
says nothing about Kafka. Entry N of this log, `streamlake/offsets/N` in the checkpoint directory, has the
Kafka offsets that checkpoint N ends at. It is written before anything of the checkpoint is read, and never
again, so that a replay reads the same records. Invariant: a tick without an entry has read nothing; only the
last one can be without.
"""

from __future__ import annotations

import json
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError

DIRECTORY = "streamlake/offsets"
_VERSION = "v1"
_TICK = {"offset", "timestamp"}
_TICK_MS = 1_000


def entry_path(checkpoint_id: int) -> str:
    """Path of a checkpoint's entry, below the checkpoint directory."""
    return f"{DIRECTORY}/{checkpoint_id}"


def entry_to_bytes(offsets: str) -> bytes:
    """The entry of a checkpoint that ends at `offsets`, a JSON object."""
    return f"{_VERSION}\n{offsets}\n".encode()


def entry_from_text(text: str, path: str) -> str:
    """The offsets in an entry, as JSON text; `path` is for messages.

    Raises DataInvalidError for a damaged entry, FeatureUnsupportedError for one of another version.
    """
    version, _, offsets = text.partition("\n")
    if version.strip() != _VERSION:
        raise FeatureUnsupportedError(
            f"{path} is an offset log of version {version[:20]!r}; {_VERSION} is the version that can be "
            "read here: use the version of streamlake that wrote it, or start with a new checkpoint "
            "directory"
        )
    try:
        json.loads(offsets)
    except ValueError as error:
        raise DataInvalidError(
            f"{path} does not hold offsets in JSON: {offsets[:200]!r}; restore it from a copy"
        ) from error
    return offsets.strip()


def tick_of(offset: str) -> int | None:
    """The checkpoint that ends at `offset`, a text of Spark's offset log; None where that is not a tick."""
    if '"timestamp"' not in offset:
        return None
    try:
        value: Any = json.loads(offset)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.keys() != _TICK or not isinstance(value["offset"], int):
        return None
    return int(value["offset"]) - 1


def tick_text(checkpoint_id: int) -> str:
    """The offset in Spark's log at which a checkpoint of the direct path ends; the inverse of `tick_of`."""
    number = checkpoint_id + 1
    return json.dumps({"offset": number, "timestamp": number * _TICK_MS}, separators=(",", ":"))
