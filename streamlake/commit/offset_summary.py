"""The offsets that a checkpoint ends at, as entries of its snapshot's summary: written and read back.

`marker` writes them in every commit; `streamlake status` and `verify` read them. A table repeats the summary
of every snapshot in each of its metadata files, so the entries are short: one list of numbers per topic,
packed where a topic has many partitions, and no entry where even that is too long. The digest beside them
still identifies the offsets, and Spark's offset log has them in full.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamlake.errors import SourceError
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import Partition, PartitionOffsets, SourceOffsets, nest

OFFSETS = "streamlake.offsets"
"""End offsets of a Kafka source: {"orders": [120, 98]} is the next offset of each partition, from partition 0
on; {"orders": {"3": 17}} where partitions do not begin at 0 or have gaps; {"orders": "98+1:FgA..."} for a
topic with more than LISTED partitions: the smallest offset, the bytes of each number, and in base64 how much
larger each offset is, as little-endian numbers.
"""
FIRST_OFFSETS = "streamlake.first-offsets"
"""Start offsets of a Kafka source, in the same form; left out where they are long, see FIRST_LIMIT."""
START_OFFSETS = "streamlake.start-offsets"
END_OFFSETS = "streamlake.end-offsets"
"""End offsets of any other source: Spark's texts as a JSON list, one per source."""
TEXT_LIMIT = 8_192
FIRST_LIMIT = 1_024
"""Longer start offsets are left out: the commit before has them as its end, which their digest shows."""
LISTED = 64
_PACKED = re.compile(r"(-?\d+)\+([1-8]):([A-Za-z0-9+/]*={0,2})")


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
    the entry would be longer than FIRST_LIMIT.
    """
    before, after = source_offsets(start), source_offsets(end)
    if after is None:
        return {}
    known = {} if before is None else before.positions
    text = _compact({**known, **after.first})
    return {FIRST_OFFSETS: text} if len(text) <= FIRST_LIMIT else {}


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
        offsets_only = [offset for _, offset in ordered]
        listed = offsets_only if len(ordered) <= LISTED else _packed(offsets_only)
        short[topic] = listed if dense else dict(ordered)
    return json.dumps(short, separators=(",", ":"))


def _expanded(short: Mapping[str, Any]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for topic, offsets in short.items():
        if isinstance(offsets, str):
            offsets = _unpacked(offsets)
        pairs = offsets.items() if isinstance(offsets, Mapping) else enumerate(offsets)
        found |= {(topic, int(partition)): int(offset) for partition, offset in pairs}
    return found


def _packed(offsets: Sequence[int]) -> str:
    least = min(offsets)
    width = max(1, ((max(offsets) - least).bit_length() + 7) // 8)
    data = b"".join((offset - least).to_bytes(width, "little") for offset in offsets)
    return f"{least}+{width}:{base64.b64encode(data).decode('ascii')}"


def _unpacked(text: str) -> list[int]:
    """The offsets in such a text. Raises ValueError for any other text."""
    match = _PACKED.fullmatch(text)
    if match is None:
        raise ValueError(f"these are no packed offsets: {text[:40]!r}")
    least, width, data = int(match[1]), int(match[2]), base64.b64decode(match[3])
    if len(data) % width:
        raise ValueError(f"packed offsets of {width} bytes do not take {len(data)} bytes")
    return [least + int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
