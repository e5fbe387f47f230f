"""Offsets as values: a stream's progress, the ranges between two such points, and their JSON.

Spark writes the JSON into the checkpoint's offset log, so its format outlives a release. Invariant: equal
offsets have equal JSON (keys are sorted), because Spark compares the text to see whether there is anything
new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from streamlake.errors import SourceError

Partition = tuple[str, int]
"""(topic, partition number)."""

PartitionOffsets = Mapping[Partition, int]
NO_TOPIC_ID = "00000000-0000-0000-0000-000000000000"
"""The id in a broker's answer for a topic without an id."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `start` up to, not including, `until` of one topic partition. Holes are allowed (compaction).

    `topic_id` is the id of the topic that is meant, which shows whether a topic of that name is still the
    same; empty where it is not known. It does not count for equality.
    """

    topic: str
    partition: int
    start: int
    until: int
    topic_id: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """The number of offsets, which is the number of records where there are no holes."""
        return self.until - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"


@dataclass(frozen=True)
class SourceOffsets:
    """The next offset to read of every partition. Immutable.

    `positions` holds these offsets. `first` is where reading begins in a partition that the previous offsets
    do not have: all partitions in a first micro-batch, later those found while running or of a recreated
    topic. `topic_ids` are the ids of the topics, where the broker has ids: another id under the same name is
    another topic.
    """

    positions: PartitionOffsets
    first: PartitionOffsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that Spark stores.

        {"offsets": {topic: {partition: offset}}, "first": ..., "topic-ids": ...}; the last two only if not
        empty.
        """
        value: dict[str, Any] = {"offsets": nest(self.positions)}
        if self.first:
            value["first"] = nest(self.first)
        if self.topic_ids:
            value["topic-ids"] = dict(sorted(self.topic_ids.items()))
        return value

    def to_text(self) -> str:
        """The text of `to_json()` in Spark's offset log."""
        return json.dumps(self.to_json())

    @staticmethod
    def from_json(value: Any) -> SourceOffsets:
        """The offsets of a JSON object from `to_json`. Raises SourceError for any other value."""
        try:
            return SourceOffsets(
                flatten(value["offsets"]),
                flatten(value.get("first", {})),
                _known_ids(value.get("topic-ids", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SourceError(
                f"the checkpoint holds source offsets that are not streamlake's: {json.dumps(value)[:200]}; "
                "it belongs to another source: use another checkpoint location"
            ) from error

    def reaches(self, target: SourceOffsets) -> bool:
        """Whether nothing up to `target` is left to read."""
        return all(
            self.topic_ids.get(part[0]) == target.topic_ids.get(part[0])
            and self._has_passed(part, offset, begins_anew=part in target.first)
            for part, offset in target.positions.items()
        )

    def _has_passed(self, part: Partition, offset: int, *, begins_anew: bool) -> bool:
        position = self.positions.get(part, -1)
        # Beyond the end of a log that begins again: the position is of the old log, and the new one is
        # unread.
        return position == offset or (position > offset and not begins_anew)


def nest(offsets: PartitionOffsets) -> dict[str, dict[str, int]]:
    """{topic: {"0": offset}}, sorted by topic and partition."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def flatten(nested: Mapping[str, Mapping[str, Any]]) -> dict[Partition, int]:
    """The inverse of `nest`. Raises ValueError or TypeError for anything else."""
    flat: dict[Partition, int] = {}
    for topic, partitions in nested.items():
        for partition, offset in partitions.items():
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise TypeError(f"the offset of {topic}-{partition} is not an integer: {offset!r}")
            flat[(str(topic), int(partition))] = offset
    return flat


def limited(start: PartitionOffsets, end: PartitionOffsets, limit: int | None) -> dict[Partition, int]:
    """End offsets with at most `limit` offsets after `start`, shared in proportion to the backlogs.

    `start` has every partition of `end`. Partitions with a backlog advance by at least one offset while the
    limit allows it, so that none starves beside a large neighbour. What rounding leaves over goes to the
    largest remainders.
    """
    backlog = {part: max(0, offset - start[part]) for part, offset in end.items()}
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return {part: max(offset, start[part]) for part, offset in end.items()}
    exact = {part: size * limit / total for part, size in backlog.items()}
    share = {part: min(backlog[part], int(size)) for part, size in exact.items()}
    left = limit - sum(share.values())
    waiting = sorted(
        (part for part in backlog if share[part] < backlog[part]),
        key=lambda part: (share[part] > 0, share[part] - exact[part], part),
    )
    for part in waiting[: max(0, left)]:
        share[part] += 1
    return {part: start[part] + share[part] for part in end}


def split(ranges: Iterable[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """The ranges cut into about `min_partitions` of them, large ones first; empty ranges are left out."""
    kept = [piece for piece in ranges if piece.size > 0]
    if not kept or min_partitions is None or len(kept) >= min_partitions:
        return kept
    total = sum(piece.size for piece in kept)
    pieces: list[OffsetRange] = []
    for whole in kept:
        parts = min(whole.size, max(1, round(whole.size / total * min_partitions)))
        bounds = [whole.start + whole.size * at // parts for at in range(parts + 1)]
        pieces += [replace(whole, start=low, until=high) for low, high in pairwise(bounds)]
    return pieces


def at_most(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """The ranges in their order, in at most `tasks` groups of about the same number of records.

    There are fewer groups where there are fewer ranges.
    """
    if len(ranges) <= tasks:
        return [[piece] for piece in ranges]
    total = max(sum(piece.size for piece in ranges), 1)
    groups: dict[int, list[OffsetRange]] = {}
    before = 0
    for piece in ranges:
        # The middle of a range decides: a large range does not draw its neighbours into its own task.
        groups.setdefault(min((2 * before + piece.size) * tasks // (2 * total), tasks - 1), []).append(piece)
        before += piece.size
    return list(groups.values())


def grouped(ranges: Sequence[OffsetRange], tasks: int, worthwhile: int = 250_000) -> list[list[OffsetRange]]:
    """The ranges in their order, in groups that each justify the cost of a task.

    A task costs as much as some ten thousand records. Up to `tasks` ranges each get their own task. Of more
    ranges, neighbours share a task up to `worthwhile` records, but there are at least about `tasks` groups.
    """
    if len(ranges) <= tasks:
        return [[piece] for piece in ranges]
    enough = min(worthwhile, -(-sum(piece.size for piece in ranges) // max(tasks, 1)))
    groups: list[list[OffsetRange]] = []
    size = enough
    for piece in ranges:
        if size + piece.size // 2 >= enough:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.size
    return groups


def _known_ids(logged: Mapping[str, str]) -> dict[str, str]:
    """The topic ids in a log. A broker's answer without an id was once logged as an id."""
    return {topic: topic_id for topic, topic_id in logged.items() if topic_id != NO_TOPIC_ID}
