"""Table metadata files: JSON, plain or gzip (spec: Appendix C, Table Metadata and Snapshots).

Read on every refresh, written once per commit. Snapshots never change, so the text of all of them is kept and
extended: a commit to a table with thousands of snapshots pays only for what it adds. Invariant:
`metadata_bytes` writes exactly the JSON values of `spec.metadata.table_metadata.metadata_to_json`.
"""

from __future__ import annotations

import gzip as gzip_module
import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.manifests.partition_sources import with_stored_sources
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotLogEntry, snapshot_to_json
from streamlake.spec.metadata.table_metadata import TableMetadata, metadata_from_json, metadata_to_json
from streamlake.storage.file_io import FileIO

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 4
_SEPARATORS = (",", ":")
_ITEMS_TAKEN_BACK = 4
_JOINED_TEXTS_KEPT = 16
_SHORT = 64


def read_metadata(io: FileIO, path: str) -> TableMetadata:
    """The table metadata in `path`; gzip is recognised by content.

    Raises MissingFileError, DataInvalidError for a file that is not table metadata, FeatureUnsupportedError
    for an unknown format version.
    """
    return with_stored_sources(io, parse_metadata(io.read_bytes(path), path))


def parse_metadata(data: bytes, path: str) -> TableMetadata:
    """The table metadata that `data` holds; `path` names it in errors. Raises as `read_metadata`."""
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip_module.decompress(data)
        except (OSError, EOFError, zlib.error) as cause:
            raise _damaged(path, f"its gzip data cannot be decompressed ({cause})") from cause
    if not data.strip():
        raise _damaged(path, "it is empty")
    try:
        obj = json.loads(data, object_hook=_shared)
    except (ValueError, RecursionError) as cause:
        raise _damaged(path, f"it is not JSON ({cause})") from cause
    if not isinstance(obj, dict) or "format-version" not in obj:
        raise _damaged(path, "it is JSON, but not table metadata (there is no format-version)")
    try:
        return metadata_from_json(obj)
    except FeatureUnsupportedError as cause:
        raise FeatureUnsupportedError(f"{path}: {cause}") from cause
    except (DataInvalidError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise _damaged(path, str(cause)) from cause


def metadata_bytes(metadata: TableMetadata, *, gzip: bool = False) -> bytes:
    """The content of a metadata file."""
    rest = metadata_to_json(replace(metadata, snapshots=(), snapshot_log=()), with_snapshots=False)
    parts: list[bytes | bytearray] = []
    with _joining:
        for key, value in rest.items():
            parts.append(f"{',' if parts else '{'}{json.dumps(key)}:".encode())
            if key == "snapshots":
                parts += (b"[", _joined(metadata.table_uuid, key).text_of(metadata.snapshots), b"]")
            elif key == "snapshot-log":
                parts += (b"[", _joined(metadata.table_uuid, key).text_of(metadata.snapshot_log), b"]")
            else:
                parts.append(json.dumps(value, separators=_SEPARATORS).encode())
        data = b"".join((*parts, b"}"))
    return gzip_module.compress(data, _GZIP_LEVEL, mtime=0) if gzip else data


class _JoinedText:
    """The comma-separated JSON of a tuple that grows at its end; each commit extends it."""

    def __init__(self, to_text: Callable[[Any], str]) -> None:
        self._to_text = to_text
        self._items: tuple[Any, ...] = ()
        self._ends: list[int] = []
        self._text = bytearray()

    def text_of(self, items: tuple[Any, ...]) -> bytearray:
        """The JSON text of `items`, valid until the next call."""
        known = len(self._items)
        # A retry replaces the last item; any earlier difference (expired snapshots) starts anew.
        for kept in range(known, max(0, known - _ITEMS_TAKEN_BACK) - 1, -1):
            if items[:kept] == self._items[:kept]:
                break
        else:
            kept = 0
        del self._ends[kept:]
        del self._text[self._ends[-1] if self._ends else 0 :]
        self._items = items[:kept]
        for item in items[kept:]:
            self._text += f"{',' if self._ends else ''}{self._to_text(item)}".encode()
            self._ends.append(len(self._text))
        self._items = items
        return self._text


# All threads of the process share the texts, and a call changes them: one call at a time.
_joining = Lock()
_joined_texts: dict[tuple[str, str], _JoinedText] = {}


def _joined(table_uuid: str, key: str) -> _JoinedText:
    found = _joined_texts.pop((table_uuid, key), None)
    if found is None:
        found = _JoinedText(_snapshot_text if key == "snapshots" else _log_text)
        while len(_joined_texts) >= _JOINED_TEXTS_KEPT:
            del _joined_texts[next(iter(_joined_texts))]
    _joined_texts[table_uuid, key] = found
    return found


def _log_text(entry: SnapshotLogEntry) -> str:
    return f'{{"timestamp-ms":{entry.timestamp_ms},"snapshot-id":{entry.snapshot_id}}}'


def _snapshot_text(snapshot: Snapshot) -> str:
    return json.dumps(snapshot_to_json(snapshot), separators=_SEPARATORS)


def _shared(pairs: dict[str, Any]) -> dict[str, Any]:
    """A JSON object whose short texts exist once: summaries of many snapshots repeat theirs."""
    for key, value in pairs.items():
        if type(value) is str and len(value) <= _SHORT:
            pairs[key] = sys.intern(value)
    return pairs


def _damaged(path: str, what: str) -> DataInvalidError:
    return DataInvalidError(
        f"{path} is not usable as table metadata: {what}; restore it from a backup, or, if an earlier "
        "metadata file is intact, move this one away (changes that only this one holds are lost)"
    )
