"""The widening of a key index whose columns have wider types now: its entries are converted to the new types.

Place in the flow: on the driver, bucket by bucket, when a stream finds its index again. Invariant: no entry
is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamlake.index.runs.entries import sort_entries
from streamlake.index.runs.lookup import Live
from streamlake.index.runs.merge import merged_entries
from streamlake.index.runs.run import open_run, write_run
from streamlake.index.state import IndexState
from streamlake.index.wider_keys import (
    can_widen_keys,
    can_widen_sequence_values,
    widened_keys,
    widened_sequence_values,
)
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.type_json import parse_primitive
from streamlake.storage.file_io import FileIO
from streamlake.write.upsert.upsert_key import UpsertKey


def widened(
    io: FileIO, state: IndexState, key: UpsertKey, live: Live, new_run: Callable[[], str]
) -> IndexState | None:
    """The index with the types that `key` has now, in new runs; None where these are not wider types of the
    same columns. `live` are the data files of its snapshot. Raises IndexDamagedError, StorageError.
    """
    if (state.key_ids, state.sequence_ids) != (key.key_ids, key.sequence_ids):
        return None
    sequence = () if key.sequence_codec is None else key.sequence_codec.fields
    old, old_sequence = _typed(key.codec.fields, state.key_types), _typed(sequence, state.sequence_types)
    if not can_widen_keys(old, key.codec.fields) or not can_widen_sequence_values(
        old_sequence, key.sequence_codec
    ):
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
            sequence_values=widened_sequence_values(
                entries.sequence_values, old_sequence, key.sequence_codec
            ),
            times=entries.times,
        )
        for bucket, part in enumerate(state.bucketing.split(fresh, key.codec)):
            if len(part):
                runs.append(write_run(io, new_run(), part, bucket, state.buckets))
    return replace(state, runs=tuple(runs), key_types=key.key_types, sequence_types=key.sequence_types)


def _typed(fields: Sequence[NestedField], types: Sequence[str]) -> tuple[NestedField, ...]:
    return tuple(replace(part, type=parse_primitive(text)) for part, text in zip(fields, types, strict=True))
