"""The offsets that a checkpoint ends at, as entries of its snapshot's summary: written and read back.

`marker` writes them in every commit; `streamlake status` and `verify` read them. A table repeats the summary
of every snapshot in each of its metadata files, so the entries are short: one list of numbers per topic, and
no entry where even that is too long. The digest beside them still identifies the offsets, and Spark's offset
log has them in full.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamlake.errors import SourceError
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import Partition, PartitionOffsets, SourceOffsets, nest

OFFSETS = "streamlake.offsets"
"""End offsets of a Kafka source: {"orders": [120, 98]} is the next offset of each partition, from partition 0
on; {"orders": {"3": 17}} where partitions do not begin at 0 or have gaps.
"""
FIRST_OFFSETS = "streamlake.first-offsets"
"""Start offsets of a Kafka source, in the same form."""
START_OFFSETS = "streamlake.start-offsets"
END_OFFSETS = "streamlake.end-offsets"
"""End offsets of any other source: Spark's texts as a JSON list, one per source."""
TEXT_LIMIT = 8_192


def offsets_summary(start: Sequence[str], end: Sequence[str]) -> dict[str, str]:
    """The summary entries for offsets as Spark's offset log has them, one text per source.

    Entries longer than TEXT_LIMIT are left out. The start of a Kafka checkpoint is the end of the one before
    it.
    """
    kafka = kafka_offsets(end)
    if kafka is not None:
        entries = {OFFSETS: _compact(kafka)}
    else:
        entries = {START_OFFSETS: json.dumps(list(start)), END_OFFSETS: json.dumps(list(end))}
    return {name: text for name, text in entries.items() if len(text) <= TEXT_LIMIT}


def first_summary(start: Sequence[str], end: Sequence[str]) -> dict[str, str]:
    """The summary entry for where a checkpoint of a Kafka source begins.

    It has all partitions, those that are read for the first time included. Empty for another source, or where
    the entry would be longer than TEXT_LIMIT.
    """
    before, after = source_offsets(start), source_offsets(end)
    if after is None:
        return {}
    known = {} if before is None else before.positions
    text = _compact({**known, **after.first})
    return {FIRST_OFFSETS: text} if len(text) <= TEXT_LIMIT else {}


def kafka_offsets(texts: Sequence[str]) -> PartitionOffsets | None:
    """The next offset of every partition, from the offset log's texts of a query on Kafka.

    The query has one source, streamlake's for Kafka. None for the texts of any other query.
    """
    found = source_offsets(texts)
    return None if found is None else found.positions


def source_offsets(texts: Sequence[str]) -> SourceOffsets | None:
    """The offsets of `kafka_offsets` in the source's own form."""
    if len(texts) != 1:
        return None
    try:
        return SourceOffsets.from_json(json.loads(texts[0]))
    except (ValueError, SourceError):
        return None


def table_offset(texts: Sequence[str]) -> TableOffset | None:
    """How far a query on an Iceberg table has read it, from the offset log's texts; None for any other."""
    if len(texts) != 1:
        return None
    try:
        return TableOffset.from_json(json.loads(texts[0]))
    except (ValueError, SourceError):
        return None


def committed_table_offset(summary: Mapping[str, str]) -> TableOffset | None:
    """How far a query on an Iceberg table had read it with a snapshot; None where its summary does not record
    it.
    """
    try:
        return table_offset(json.loads(summary.get(END_OFFSETS, "[]")))
    except (ValueError, TypeError):
        return None


def committed_offsets(summary: Mapping[str, str]) -> PartitionOffsets | None:
    """The next offset of every partition after a snapshot; None where its summary does not record it."""
    try:
        if OFFSETS in summary:
            return _expanded(json.loads(summary[OFFSETS]))
        return kafka_offsets(json.loads(summary.get(END_OFFSETS, "[]")))
    except (ValueError, TypeError, AttributeError):
        return None


def _compact(offsets: PartitionOffsets) -> str:
    short: dict[str, Any] = {}
    for topic, numbered in nest(offsets).items():
        ordered = sorted((int(partition), offset) for partition, offset in numbered.items())
        dense = [partition for partition, _ in ordered] == list(range(len(ordered)))
        short[topic] = [offset for _, offset in ordered] if dense else dict(ordered)
    return json.dumps(short, separators=(",", ":"))


def _expanded(short: Mapping[str, Any]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for topic, offsets in short.items():
        pairs = offsets.items() if isinstance(offsets, Mapping) else enumerate(offsets)
        found |= {(topic, int(partition)): int(offset) for partition, offset in pairs}
    return found
