"""What an offset stands for that is only a counter: the files of a file source's batch, the Kafka offsets of a tick.

Spark's offset of a directory of files is a counter, `{"logOffset": 7}`; which files batch 7 has is in the source's own log
in the checkpoint directory. A directory that was restored from a copy counts on with the same numbers and other files, so
the files belong into what a checkpoint is recognised by. So it is with the direct path's ticks and the log of
`offset_entries`. Invariant: a batch is described alike while its log entry is a
file of its own and when Spark has compacted it with others (`9.compact`), which keeps every entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from streamlake.checkpoint.identity import canonical_offset
from streamlake.checkpoint.offset_entries import entry_from_text, entry_path, tick_of
from streamlake.errors import MissingFileError
from streamlake.storage.file_io import FileIO

Read = Callable[[str], str | None]
"""The text of a file; None where there is none."""
_COUNTER = "logOffset"
_COMPACTED_WITHIN = 30
"""Batches after which Spark has compacted one at the latest: it does so every 10, unless told otherwise."""


def reader(io: FileIO) -> Read:
    """Reading by a FileIO."""

    def read(path: str) -> str | None:
        try:
            return io.read_bytes(path).decode("utf-8", "replace")
        except MissingFileError:
            return None

    return read


def in_full(read: Read, checkpoint: str, offsets: Sequence[str]) -> tuple[str, ...]:
    """Canonical offsets, one per source: with a digest of the files in those of file sources, Kafka's in place of a tick.

    An offset whose log entry cannot be found is left as it is. Raises what `read` raises.
    """
    return tuple(_in_full(read, checkpoint, at, text) for at, text in enumerate(offsets))


def is_counter(offset: str) -> bool:
    """Whether a canonical offset may stand for something that is in a log of its own."""
    return _COUNTER in offset or tick_of(offset) is not None


def _in_full(read: Read, checkpoint: str, source: int, text: str) -> str:
    tick = tick_of(text)
    if tick is None:
        return _with_files(read, f"{checkpoint}/sources/{source}", text)
    path = f"{checkpoint}/{entry_path(tick)}"
    entry = read(path)
    return text if entry is None else canonical_offset(entry_from_text(entry, path))


def _with_files(read: Read, log: str, text: str) -> str:
    if _COUNTER not in text:
        return text
    try:
        offset = json.loads(text)
    except ValueError:
        return text
    if not isinstance(offset, dict) or offset.keys() != {_COUNTER} or not isinstance(offset[_COUNTER], int):
        return text
    entries = _entries(read, log, offset[_COUNTER])
    if entries is None:
        return text
    digest = hashlib.sha256("\n".join(entries).encode()).hexdigest()[:32]
    return json.dumps({**offset, "files": digest}, sort_keys=True)


def _entries(read: Read, log: str, batch: int) -> list[str] | None:
    """The files of a batch, sorted: modification time and path."""
    if batch < 0:
        return None
    for name in (str(batch), *(f"{batch + later}.compact" for later in range(_COMPACTED_WITHIN))):
        text = read(f"{log}/{name}")
        if text is None:
            continue
        marker = f'"batchId":{batch}'
        lines = (line for line in text.split("\n")[1:] if marker in line)
        found = [entry for line in lines if (entry := _entry(line, batch)) is not None]
        if found:
            return sorted(found)
    return None


def _entry(line: str, batch: int) -> str | None:
    try:
        obj = json.loads(line)
        return f"{obj['timestamp']} {obj['path']}" if obj["batchId"] == batch else None
    except (ValueError, KeyError, TypeError):
        return None
