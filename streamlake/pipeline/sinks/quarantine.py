"""The quarantine: tables whose records cannot be written, while the query continues with the other tables.

Where their records begin is kept in the checkpoint directory beside Spark's logs, so that none is lost: at
the query's next start the records that were skipped are read again, before new ones. Invariant: an entry is
removed only when the table holds everything from its offsets on. This is read from the table itself, because
a crash may come in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType

from streamlake.errors import DataInvalidError
from streamlake.source.offsets import OffsetRange, Partition, PartitionOffsets, flatten, nest

QUARANTINE_PATH = "streamlake/quarantine.json"
NOT_KNOWN: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Quarantined:
    """A table in quarantine since checkpoint `since`, with the error that put it there.

    `offsets` ({topic: {partition: offset}}) say where the records that it lacks begin. `topic_ids` are the
    ids of the topics that the offsets belong to, as far as they are known. `retried_at` is the checkpoint
    that brings all of the records, once that is tried; None before.
    """

    since: int
    offsets: Mapping[str, Mapping[str, int]]
    error: str
    at_ms: int
    retried_at: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def missed(self, until: PartitionOffsets) -> list[OffsetRange]:
        """The offset ranges of the records that were skipped before `until`."""
        return missed_ranges([self], until)

    def knowing(
        self,
        begin: PartitionOffsets,
        first: PartitionOffsets,
        topics: Iterable[str],
        topic_ids: Mapping[str, str] = NOT_KNOWN,
    ) -> Quarantined:
        """The entry after another checkpoint was skipped, which begins at `begin`.

        Partitions that this checkpoint reads for the first time begin at their offsets in `first`.
        """
        wanted = set(topics)
        known = {**begin, **flatten(self.offsets), **first}
        begun = {topic: topic_ids[topic] for topic, _ in first if topic in topic_ids}
        ids = {**topic_ids, **self.topic_ids, **begun}
        return replace(
            self,
            offsets=nest({part: at for part, at in known.items() if part[0] in wanted}),
            topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic in wanted},
        )


def missed_ranges(entries: Iterable[Quarantined], until: PartitionOffsets) -> list[OffsetRange]:
    """The records before `until` that at least one of the tables lacks, each once. A new range begins where
    the missing records of another table begin.
    """
    entries = list(entries)
    known_ids = {topic: topic_id for entry in entries for topic, topic_id in entry.topic_ids.items()}
    starts: dict[tuple[Partition, str], set[int]] = {}
    for entry in entries:
        ids = {**known_ids, **entry.topic_ids}
        for part, start in flatten(entry.offsets).items():
            if until.get(part, start) > start:
                starts.setdefault((part, ids.get(part[0], "")), set()).add(start)
    return [
        OffsetRange(*part, low, high, topic_id)
        for (part, topic_id), found in sorted(starts.items())
        for low, high in pairwise((*sorted(found), until[part]))
    ]


def quarantined(
    since: int,
    start: PartitionOffsets,
    topics: Iterable[str],
    error: Exception,
    at_ms: int,
    topic_ids: Mapping[str, str] = NOT_KNOWN,
) -> Quarantined:
    """The entry of a table that could not be written in the checkpoint `since`, which begins at `start`."""
    wanted = set(topics)
    offsets = {part: offset for part, offset in start.items() if part[0] in wanted}
    ids = {topic: topic_id for topic, topic_id in topic_ids.items() if topic in wanted}
    return Quarantined(since, nest(offsets), f"{type(error).__name__}: {error}", at_ms, topic_ids=ids)


def quarantine_to_bytes(entries: Mapping[str, Quarantined]) -> bytes:
    """The file's content, as JSON: the entries by their tables' names."""
    return json.dumps({name: asdict(entry) for name, entry in sorted(entries.items())}, indent=1).encode()


def quarantine_from_text(text: str, where: str) -> dict[str, Quarantined]:
    """The inverse of `quarantine_to_bytes`. Raises DataInvalidError for a damaged file: nobody would know
    which records tables lack.
    """
    try:
        return {str(name): Quarantined(**entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataInvalidError(
            f"{where}, which says what tables in quarantine lack, is damaged ({error}); restore it from a "
            "copy, or remove it: then the stream starts, and tables that were in quarantine lack the records "
            "since, which `streamlake verify` counts. Nothing is lost by that when no table was in quarantine"
        ) from error
