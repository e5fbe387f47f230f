"""Offset planner: decides on the driver which offsets the next micro-batch reads, before any record is read.

Called by the streaming source: `initial` once per checkpoint, `latest` per trigger, `ranges` per micro-batch
(again for a replay). Invariant: the ranges of a micro-batch depend on its two offsets only, so that a replay
reads the same records. Where records between them are gone, that is an error, never silent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from streamlake import clock
from streamlake.errors import DataLossError, SourceError
from streamlake.source.cluster import Cluster, Topics
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, Partition, PartitionOffsets, SourceOffsets, limited, split
from streamlake.source.source_options import EARLIEST, LATEST

_LOG = logging.getLogger(__name__)
_SHOWN = 8
_PLAN_SECONDS = 1.0
"""How long the topics from planning a micro-batch's end are used for its ranges."""
_WAYS_OUT = (
    "To continue without the missing records set fail-on-data-loss=false for this run; to start over use a "
    "new checkpoint location and starting-offsets"
)


class OffsetPlanner:
    """Plans offsets for one query. Its only state is the topics found last, and when."""

    def __init__(self, source: KafkaSource, cluster: Cluster) -> None:
        self._source = source
        self._settings = source.settings
        self._cluster = cluster
        self._topics: Topics | None = None
        self._looked_at = 0.0

    def initial(self) -> SourceOffsets:
        """Where a new checkpoint starts, by starting-offsets. Raises SourceError when nothing can be read."""
        topics = self._current_topics(within=0)
        self._check_missing(None, topics)
        mode = self._settings.starting_offsets
        if mode == "latest":
            positions = self._cluster.latest(topics.partitions)
        elif mode == "timestamp":
            positions = self._cluster.at_time(topics.partitions, self._settings.starting_timestamp_ms or 0)
        elif mode == "explicit":
            positions = self._explicit(topics.partitions)
        else:
            positions = self._cluster.earliest(topics.partitions)
        return SourceOffsets(positions, topic_ids=topics.topic_ids)

    def latest(self, known: SourceOffsets | None) -> SourceOffsets:
        """The end of everything that can be read now.

        `known` is the query's progress; None when it is not known (a source that was just restarted).
        Partitions outside of it start at their earliest offset, which is recorded in `first`. A partition of
        `known` that has vanished keeps its position. Raises DataLossError where the log ends before `known`,
        a topic was recreated, or a partition is gone, unless fail-on-data-loss is false.
        """
        topics = self._current_topics()
        ends = self._cluster.latest(topics.partitions)
        old = known.positions if known is not None else {}
        if known is not None and any(old.get(part) != end for part, end in ends.items()):
            # There is something new: make sure that it comes from the topics that the checkpoint means.
            fresh = self._current_topics(within=0)
            if fresh != topics:
                topics, ends = fresh, self._cluster.latest(fresh.partitions)
        self._check_missing(known, topics)
        if old and not any(self._is_meant(topic) for topic, _ in old):
            self._other_topics(sorted({topic for topic, _ in old}))
        elif known is not None:
            self._check_known(known, topics, ends)
        remade = _remade(known, topics)
        unknown = [part for part, end in ends.items() if part[0] in remade or end < old.get(part, end + 1)]
        kept = {part: at for part, at in old.items() if part not in ends and part[0] not in remade}
        ids = {**(known.topic_ids if known is not None else {}), **topics.topic_ids}
        return SourceOffsets({**kept, **ends}, self._cluster.earliest(unknown), ids)

    def up_to(self, known: SourceOffsets, target: SourceOffsets) -> SourceOffsets:
        """The end of the next micro-batch: `target`, or as far as max-offsets-per-trigger allows."""
        starts = {part: _start(known, target, part) for part in target.positions}
        ends = limited(starts, target.positions, self._settings.max_offsets_per_trigger)
        if all(ends[part] == known.positions.get(part) for part in ends) and _same_ids(known, target):
            return known
        first = {part: offset for part, offset in target.first.items() if _is_new(known, target, part)}
        remade = _remade(known, target)
        kept = {part: offset for part, offset in known.positions.items() if part[0] not in remade}
        return SourceOffsets({**kept, **ends}, first, {**known.topic_ids, **target.topic_ids})

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """The ranges to read between two offsets, cut for min-partitions.

        Raises DataLossError when the beginning of a range no longer exists, or its topic was recreated. Where
        fail-on-data-loss is false, the range is cut to what is left.
        """
        self._check_known(start, end, end.positions)
        whole = [
            OffsetRange(part[0], part[1], _start(start, end, part), until)
            for part, until in sorted(end.positions.items())
        ]
        due = self.identified([piece for piece in whole if piece.size > 0], end.topic_ids)
        available = self._cluster.earliest((piece.topic, piece.partition) for piece in due)
        kept = []
        for piece in due:
            earliest = available.get((piece.topic, piece.partition))
            if earliest is None:
                self._data_loss(f"{piece} cannot be read: the partition no longer exists")
            elif earliest > piece.start:
                self._data_loss(
                    f"{piece.topic}-{piece.partition}: offsets {piece.start} to "
                    f"{min(earliest, piece.until) - 1} are no longer in Kafka (the first available is "
                    f"{earliest}); retention has removed them"
                )
                if earliest < piece.until:
                    kept.append(replace(piece, start=earliest))
            else:
                kept.append(piece)
        return split(kept, self._settings.min_partitions)

    def identified(self, due: Sequence[OffsetRange], logged: Mapping[str, str]) -> list[OffsetRange]:
        """The ranges with the ids of their topics: their own, else those in `logged`, else the broker's.

        Raises DataLossError when a topic was recreated. Where fail-on-data-loss is false, its ranges are left
        out.
        """
        if not due:
            return []
        now = self._current_topics(within=_PLAN_SECONDS).topic_ids
        known = [
            replace(piece, topic_id=piece.topic_id or logged.get(piece.topic) or now.get(piece.topic, ""))
            for piece in due
        ]
        remade = [piece for piece in known if now.get(piece.topic, piece.topic_id) != piece.topic_id]
        if remade:
            topics = sorted({piece.topic for piece in remade})
            self._data_loss(_made_anew(topics, "after the offsets that are due were logged"))
        return [piece for piece in known if now.get(piece.topic, piece.topic_id) == piece.topic_id]

    def _current_topics(self, *, within: float | None = None) -> Topics:
        """The topics, requested again after `within` seconds (None: the interval of partition discovery)."""
        interval = self._settings.partition_discovery_interval_ms / 1000 if within is None else within
        if self._topics is None or clock.monotonic() - self._looked_at >= interval:
            self._topics = self._cluster.topics()
            self._looked_at = clock.monotonic()
        return self._topics

    def _explicit(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        given = self._settings.explicit_offsets
        existing = set(partitions)
        absent = sorted(part for part in given if part not in existing)
        if absent:
            raise SourceError(
                f"starting-offsets names partitions that Kafka does not have: {_listed(absent)}; correct it"
            )
        missing = sorted(part for part in existing if part not in given)
        if missing:
            raise SourceError(
                f"starting-offsets leaves out {_listed(missing)}; give every partition an offset "
                "(-2 earliest, -1 latest)"
            )
        earliest, latest = self._cluster.earliest(given), self._cluster.latest(given)
        positions = {}
        for part, offset in given.items():
            position = earliest[part] if offset == EARLIEST else latest[part] if offset == LATEST else offset
            if not earliest[part] <= position <= latest[part]:
                raise SourceError(
                    f"starting-offsets: offset {offset} of {part[0]}-{part[1]} does not exist; "
                    f"available are {earliest[part]} to {latest[part]}"
                )
            positions[part] = position
        return positions

    def _check_missing(self, known: SourceOffsets | None, topics: Topics) -> None:
        read = {topic for topic, _ in known.positions} if known is not None else set()
        missing = [topic for topic in topics.missing if topic not in read]
        if missing:
            raise SourceError(
                f"Kafka at {self._source.bootstrap_servers} has no topic {', '.join(missing)} (or this user "
                f"may not see it); create it or correct the name{topics.did_you_mean(missing)}"
            )

    def _check_known(self, known: SourceOffsets, now: _Identified, ends: PartitionOffsets) -> None:
        """Reports what of `known` is gone: recreated topics, vanished partitions, logs cut short."""
        remade = _remade(known, now)
        if remade:
            self._data_loss(_made_anew(sorted(remade), "since the last checkpoint"))
        for part, offset in sorted(known.positions.items()):
            if part[0] in remade:
                continue
            if part not in ends:
                self._data_loss(
                    f"partition {part[0]}-{part[1]}, read up to offset {offset}, no longer exists"
                )
            elif ends[part] < offset:
                self._data_loss(
                    f"{part[0]}-{part[1]} ends at offset {ends[part]}, before the checkpoint's offset "
                    f"{offset}: the topic was deleted and created again, or its log was truncated"
                )

    def _is_meant(self, topic: str) -> bool:
        """Whether the source's topics are to include this one, whether or not it is there."""
        named, pattern = self._source.topics, self._source.topic_pattern
        return topic in named if named is not None else re.fullmatch(pattern or "", topic) is not None

    def _other_topics(self, read: Sequence[str]) -> None:
        """Reports a checkpoint directory of which the source reads no topic: most likely another stream's."""
        named, pattern = self._source.topics, self._source.topic_pattern
        what = (
            f"the checkpoint directory has read {_some(read)}, and none of the topics that this stream reads "
            f"({_some(named) if named is not None else f'those that match {pattern!r}'})"
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{what}: it is the directory of another stream, or the topics have other names now. Correct "
                "the location of the checkpoint directory (`checkpoint:` in a pipeline file), or the topics"
            )
        _LOG.warning("%s; continuing, because fail-on-data-loss is false", what)

    def _data_loss(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(f"{what}. {_WAYS_OUT}")
        _LOG.warning("%s; continuing, because fail-on-data-loss is false", what)


def _made_anew(topics: Iterable[str], since: str) -> str:
    return (
        f"topic {', '.join(topics)} was deleted and created again {since}: offsets of the old topic mean "
        "nothing in the new one"
    )


class _Identified(Protocol):
    """Offsets or a broker's answer, which both have topic ids."""

    @property
    def topic_ids(self) -> Mapping[str, str]: ...


def _remade(known: _Identified | None, now: _Identified) -> set[str]:
    """The topics with another id now than when `known` was written."""
    before = {} if known is None else known.topic_ids
    return {topic for topic, now_id in now.topic_ids.items() if before.get(topic, now_id) != now_id}


def _same_ids(known: SourceOffsets, target: SourceOffsets) -> bool:
    return all(known.topic_ids.get(topic) == topic_id for topic, topic_id in target.topic_ids.items())


def _is_new(known: SourceOffsets, target: SourceOffsets, part: Partition) -> bool:
    """Whether `known` has no position in the partition that `target` means."""
    return (
        part not in known.positions
        or part[0] in _remade(known, target)
        or (part in target.first and target.positions[part] < known.positions[part])
    )


def _start(known: SourceOffsets, target: SourceOffsets, part: Partition) -> int:
    if _is_new(known, target, part):
        return target.first.get(part, 0)
    return known.positions[part]


def _some(names: Iterable[str]) -> str:
    topics = list(names)
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    return f"{', '.join(topics[:_SHOWN])}{more}"


def _listed(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
