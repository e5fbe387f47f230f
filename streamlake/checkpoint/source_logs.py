"""Resolves offsets that are only counters: to the files of a file source's batch, or to Kafka offsets.

Spark's offset of a directory of files is a counter, `{"logOffset": 7}`; the source's own log in the
checkpoint directory says which files batch 7 has. A directory that was restored from a copy continues with
the same numbers and other files, so the files are part of a checkpoint's identity. The same holds for the
ticks of the direct path and the log of `offset_entries`. Invariant: the description of a batch is the same
while its log entry is a file of its own and after Spark has compacted it with others (`9.compact`), as that
keeps every entry.
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
"""Reads the text of a file; None where there is none."""
_COUNTER = "logOffset"
_FILES = "files"
_COMPACTED_WITHIN = 30
"""The number of batches after which Spark has compacted one at the latest; it does so every 10 by default."""


def reader(io: FileIO) -> Read:
    """A `Read` over a FileIO."""

    def read(path: str) -> str | None:
        try:
            return io.read_bytes(path).decode("utf-8", "replace")
        except MissingFileError:
            return None

    return read


def in_full(read: Read, checkpoint: str, offsets: Sequence[str]) -> tuple[str, ...]:
    """Canonical offsets, one per source: resolved to a digest of a batch's files, or to Kafka's offsets.

    An offset whose log entry cannot be found is left as it is. Raises what `read` raises.
    """
    return tuple(_in_full(read, checkpoint, at, text) for at, text in enumerate(offsets))


def most_files(read: Read, checkpoint: str, offsets: Sequence[str]) -> int:
    """The most files that one file source has in a batch with these canonical offsets; 0 where unknown.

    Raises what `read` raises.
    """
    batches = [(at, _batch_of(text)) for at, text in enumerate(offsets)]
    logs = [(f"{checkpoint}/sources/{at}", batch) for at, batch in batches if batch is not None]
    return max((len(_entries(read, log, batch) or ()) for log, batch in logs), default=0)


def is_counter(offset: str) -> bool:
    """Whether a canonical offset may be a counter that a log of its own explains."""
    return _COUNTER in offset or tick_of(offset) is not None


def _in_full(read: Read, checkpoint: str, source: int, text: str) -> str:
    tick = tick_of(text)
    if tick is None:
        return _with_files(read, f"{checkpoint}/sources/{source}", text)
    path = f"{checkpoint}/{entry_path(tick)}"
    entry = read(path)
    return text if entry is None else canonical_offset(entry_from_text(entry, path))


def _with_files(read: Read, log: str, text: str) -> str:
    batch = _batch_of(text)
    entries = None if batch is None else _entries(read, log, batch)
    if entries is None:
        return text
    digest = hashlib.sha256("\n".join(entries).encode()).hexdigest()[:32]
    return json.dumps({_COUNTER: batch, _FILES: digest}, sort_keys=True)


def _batch_of(text: str) -> int | None:
    """The batch number in the offset of a file source, resolved or not; None for other sources."""
    if _COUNTER not in text:
        return None
    try:
        offset = json.loads(text)
    except ValueError:
        return None
    if not isinstance(offset, dict) or not {_COUNTER} <= offset.keys() <= {_COUNTER, _FILES}:
        return None
    batch = offset[_COUNTER]
    return batch if isinstance(batch, int) else None


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
