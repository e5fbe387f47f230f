"""A `Cluster` that is a dictionary: what the driver asks the brokers, without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamlake.options import suggestion
from streamlake.source.cluster import Topics
from streamlake.source.offsets import Partition


class FakeCluster:
    """Logs as {(topic, partition): (earliest, latest)}, and the ids of the topics."""

    def __init__(
        self, logs: Mapping[Partition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        self.logs = dict(logs)
        self.ids = dict(ids or {})
        self.wanted: tuple[str, ...] | None = None
        self.questions = 0

    def of(self, source: Any) -> FakeCluster:
        """In place of the class KafkaCluster: the cluster as this source sees it."""
        self.wanted = source.topics
        return self

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def topics(self) -> Topics:
        names = {topic for topic, _ in self.logs}
        missing = tuple(sorted(set(self.wanted or ()) - names))
        near = {name: found for name in missing if (found := suggestion(name, names))}
        return Topics(
            tuple(sorted(self.logs)), {t: i for t, i in self.ids.items() if t in names}, missing, near
        )

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {part: self.logs[part][0] for part in partitions if part in self.logs}

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self.questions += 1
        return {part: self.logs[part][1] for part in partitions if part in self.logs}

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        return {part: min(self.logs[part][1], timestamp_ms) for part in partitions}

    def close(self) -> None:
        pass
