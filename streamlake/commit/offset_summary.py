"""The offsets that a checkpoint ends at, as entries of its snapshot's summary, and read back from them.

Written by `marker` in every commit, read by `streamlake status` and `verify`. A table keeps the summary of every snapshot
in each of its metadata files, so the entries are short: one list of numbers per topic, and none at all where even these
are too long; then the digest beside them still tells which offsets were meant, and Spark's offset log has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamlake.errors import SourceError
from streamlake.source.offsets import Partition, PartitionOffsets, SourceOffsets, nest

OFFSETS = "streamlake.offsets"
"""Of a Kafka source: {"orders": [120, 98]}, the next offset of each partition, from 0 on; {"orders": {"3": 17}} where the
partitions do not begin at 0 or have gaps."""
FIRST_OFFSETS = "streamlake.first-offsets"
"""The same of where the checkpoint begins."""
START_OFFSETS = "streamlake.start-offsets"
END_OFFSETS = "streamlake.end-offsets"
"""Of any other source: Spark's texts, as a JSON list with one for each source."""
TEXT_LIMIT = 8_192


def offsets_summary(start: Sequence[str], end: Sequence[str]) -> dict[str, str]:
    """The summary entries for offsets as Spark's offset log has them, one text per source; what is longer than
    TEXT_LIMIT is left out. Where a checkpoint of a Kafka source begins is what the one before it says."""
    kafka = kafka_offsets(end)
    if kafka is not None:
        told = {OFFSETS: _compact(kafka)}
    else:
        told = {START_OFFSETS: json.dumps(list(start)), END_OFFSETS: json.dumps(list(end))}
    return {name: text for name, text in told.items() if len(text) <= TEXT_LIMIT}


def first_summary(start: Sequence[str], end: Sequence[str]) -> dict[str, str]:
    """The summary entry for where a checkpoint of a Kafka source begins, partition by partition, those that it reads for the
    first time among them; none for another source, or where it would be longer than TEXT_LIMIT."""
    before, after = source_offsets(start), source_offsets(end)
    if after is None:
        return {}
    known = {} if before is None else before.positions
    text = _compact({**known, **after.first})
    return {FIRST_OFFSETS: text} if len(text) <= TEXT_LIMIT else {}


def kafka_offsets(texts: Sequence[str]) -> PartitionOffsets | None:
    """The next offset of every partition in the offset log's texts of a query with one source, streamlake's for Kafka;
    None for those of another query."""
    found = source_offsets(texts)
    return None if found is None else found.positions


def source_offsets(texts: Sequence[str]) -> SourceOffsets | None:
    """The same as the source knows them."""
    if len(texts) != 1:
        return None
    try:
        return SourceOffsets.from_json(json.loads(texts[0]))
    except (ValueError, SourceError):
        return None


def committed_offsets(summary: Mapping[str, str]) -> PartitionOffsets | None:
    """The next offset of every partition after a snapshot with this summary; None where it does not tell them."""
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
