"""Rejected records that a replay has chosen: by topic, whole or cut short, or refused by the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.rejected_records import cut_records
from streamlake.errors import DecodeError, SchemaMismatchError
from streamlake.operate.replay.replay_plan import places
from streamlake.pipeline.runs.rejected.refused_changes import refused_changes
from streamlake.records import CUT_HEADER, place_text
from streamlake.write.files.result import WriteResult

_CHUNK_RECORDS = 32_768
_IS_CUT = (
    "the rejects have only the beginning of this record, which was too large to be held, so that it is not "
    "replayed. Send what is in the topic in smaller records, or raise record.max-bytes and read it from the "
    "topic again; then delete it from the rejects. Whoever puts the whole value there takes the header "
    f"{CUT_HEADER} out"
)


def of_one_topic(chosen: pa.Table) -> Iterator[tuple[int, int]]:
    """(first, count) of the rejects in runs of one topic, none too long."""
    codes = pc.dictionary_encode(chosen.column("topic").combine_chunks()).indices.to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for low, high in pairwise(starts):
        for first in range(low, high, _CHUNK_RECORDS):
            yield first, min(_CHUNK_RECORDS, high - first)


def whole(chosen: pa.Table) -> tuple[pa.Table, dict[str, tuple[str, str]]]:
    """The rejects with their whole record; and place -> why for the others, which cannot be replayed."""
    cut = cut_records(chosen)
    if not cut.any():
        return chosen, {}
    lost = chosen.filter(pa.array(cut))
    reasons = [f"{place_text(*where)}: {_IS_CUT}" for where in _records(lost)]
    failed = {
        place: (DecodeError.__name__, reason)
        for place, reason in zip(places(lost).to_pylist(), reasons, strict=True)
    }
    return chosen.filter(pa.array(~cut)), failed


def refused(
    chosen: pa.Table, at: Sequence[str], results: Sequence[WriteResult]
) -> dict[str, tuple[str, str]]:
    """Place -> why, for the records whose changes the writer could not carry out."""
    reasons = {(each.topic, each.partition, each.offset): each.reason for each in refused_changes(results)}
    if not reasons:
        return {}
    return {
        place: (SchemaMismatchError.__name__, reasons[where])
        for place, where in zip(at, _records(chosen), strict=True)
        if where in reasons
    }


def _records(rejects: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of each reject."""
    return zip(*(rejects.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
