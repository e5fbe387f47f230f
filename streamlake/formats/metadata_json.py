"""Metadata files: table metadata <-> JSON, plain or gzip (spec: Appendix C, Table Metadata and Snapshots).

Read on every refresh, written once per commit. Snapshots never change, so each is turned into JSON once per process:
a commit to a table with thousands of snapshots costs what it adds. Invariant: `metadata_bytes` writes what
`spec.table_metadata.metadata_to_json` says, byte for byte the same JSON values.
"""

from __future__ import annotations

import gzip as gzip_module
import json
import weakref
import zlib
from dataclasses import replace
from functools import partial

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.spec.snapshot import Snapshot, snapshot_to_json
from streamlake.spec.table_metadata import TableMetadata, metadata_from_json, metadata_to_json
from streamlake.storage.file_io import FileIO

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 4
_SEPARATORS = (",", ":")


def read_metadata(io: FileIO, path: str) -> TableMetadata:
    """The table metadata in `path`; gzip is recognised by content.

    Raises MissingFileError, DataInvalidError for a file that is not table metadata, FeatureUnsupportedError for a
    format version that is not known.
    """
    return parse_metadata(io.read_bytes(path), path)


def parse_metadata(data: bytes, path: str) -> TableMetadata:
    """The table metadata that `data` holds; `path` names it in errors."""
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip_module.decompress(data)
        except (OSError, EOFError, zlib.error) as cause:
            raise _damaged(path, f"its gzip data cannot be decompressed ({cause})") from cause
    if not data.strip():
        raise _damaged(path, "it is empty")
    try:
        obj = json.loads(data)
    except (ValueError, RecursionError) as cause:
        raise _damaged(path, f"it is not JSON ({cause})") from cause
    if not isinstance(obj, dict) or "format-version" not in obj:
        raise _damaged(path, "it is JSON, but no table metadata (there is no format-version)")
    try:
        return metadata_from_json(obj)
    except FeatureUnsupportedError as cause:
        raise FeatureUnsupportedError(f"{path}: {cause}") from cause
    except (DataInvalidError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise _damaged(path, str(cause)) from cause


def metadata_bytes(metadata: TableMetadata, *, gzip: bool = False) -> bytes:
    """The content of a metadata file."""
    rest = metadata_to_json(replace(metadata, snapshots=(), snapshot_log=()), with_snapshots=False)
    members = []
    for key, value in rest.items():
        if key == "snapshots":
            text = f"[{','.join(map(_snapshot_text, metadata.snapshots))}]"
        elif key == "snapshot-log":
            text = f"[{','.join(_log_texts(metadata))}]"
        else:
            text = json.dumps(value, separators=_SEPARATORS)
        members.append(f"{json.dumps(key)}:{text}")
    data = f"{{{','.join(members)}}}".encode()
    return gzip_module.compress(data, _GZIP_LEVEL, mtime=0) if gzip else data


def _log_texts(metadata: TableMetadata) -> list[str]:
    return [
        f'{{"timestamp-ms":{entry.timestamp_ms},"snapshot-id":{entry.snapshot_id}}}'
        for entry in metadata.snapshot_log
    ]


# Snapshots compare by content, so the key is the object's id; the reference tells whether it is still that object.
_fragments: dict[int, tuple[weakref.ref[Snapshot], str]] = {}


def _snapshot_text(snapshot: Snapshot) -> str:
    key = id(snapshot)
    found = _fragments.get(key)
    if found is not None and found[0]() is snapshot:
        return found[1]
    text = json.dumps(snapshot_to_json(snapshot), separators=_SEPARATORS)
    _fragments[key] = (weakref.ref(snapshot, partial(_forget, key)), text)
    return text


def _forget(key: int, dead: weakref.ref[Snapshot]) -> None:
    found = _fragments.get(key)
    if found is not None and found[0] is dead:
        del _fragments[key]


def _damaged(path: str, what: str) -> DataInvalidError:
    return DataInvalidError(
        f"{path} is not usable as table metadata: {what}; restore it from a backup, or, if an earlier metadata file is "
        "intact, move this one away (changes that only this one holds are lost)"
    )
