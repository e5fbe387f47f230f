"""A key index over columns that have got wider types since: its entries become those of the types of today.

Done on the driver, a bucket at a time, when a stream meets its index again. Invariant: nothing is forgotten by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamlake.index.entries import sort_entries
from streamlake.index.lookup import Live
from streamlake.index.merge import merged_entries
from streamlake.index.run import open_run, write_run
from streamlake.index.state import IndexState
from streamlake.index.wider_keys import can_widen_guards, can_widen_keys, widened_guards, widened_keys
from streamlake.spec.type_json import parse_primitive
from streamlake.spec.types import NestedField
from streamlake.storage.file_io import FileIO
from streamlake.write.upsert_key import UpsertKey


def widened(
    io: FileIO, state: IndexState, key: UpsertKey, live: Live, new_run: Callable[[], str]
) -> IndexState | None:
    """The index over the types that `key` has now, in new runs; None where they are not wider ones of the same columns. `live`
    are the data files of its snapshot. Raises IndexDamagedError, StorageError."""
    if (state.key_ids, state.sequence_ids) != (key.key_ids, key.sequence_ids):
        return None
    sequence = () if key.guard_codec is None else key.guard_codec.fields
    old, old_sequence = _typed(key.codec.fields, state.key_types), _typed(sequence, state.sequence_types)
    if not can_widen_keys(old, key.codec.fields) or not can_widen_guards(old_sequence, key.guard_codec):
        return None
    runs = []
    for refs in state.runs_by_bucket().values():
        entries = merged_entries([open_run(io, ref) for ref in refs], live, state.tombstone_ms)
        if entries is None:
            continue
        fresh = sort_entries(
            widened_keys(entries.keys, old, key.codec),
            entries.files,
            entries.positions,
            entries.flags,
            entries.paths,
            guards=widened_guards(entries.guards, old_sequence, key.guard_codec),
            times=entries.times,
        )
        for bucket, part in enumerate(state.bucketing.split(fresh, key.codec)):
            if len(part):
                runs.append(write_run(io, new_run(), part, bucket, state.buckets))
    return replace(state, runs=tuple(runs), key_types=key.key_types, sequence_types=key.sequence_types)


def _typed(fields: Sequence[NestedField], types: Sequence[str]) -> tuple[NestedField, ...]:
    return tuple(replace(part, type=parse_primitive(text)) for part, text in zip(fields, types, strict=True))
