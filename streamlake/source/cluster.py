"""Metadata requests of the driver: which partitions exist, and where their offsets begin and end.

Every question is one request per broker, through kafka-python's admin client. A broker that cannot be
reached, or an answer that does not come in time, is a SourceError that names the servers. Nothing is cached
but the connection. While brokers answer, a partition without a reachable leader is waited for as long as a
first connection is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import IsolationLevel, OffsetSpec

from streamlake import clock
from streamlake.errors import SourceError
from streamlake.options import suggestion
from streamlake.source.bulk_batches import bulk_problem
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.oauth_tokens import token_problem
from streamlake.source.offsets import Partition
from streamlake.source.topic_now import id_text, refuse_topic_creation
from streamlake.wording import named_error

_Answer = TypeVar("_Answer")
_UNKNOWN_TOPIC = 3
_TRANSIENT = frozenset({5, 6, 7, 9, 14, 15, 41, 72, 74, 75})
_ATTEMPTS = 5
_NO_LEADER = (LeaderNotAvailableError, NotLeaderForPartitionError, UnknownBrokerIdError)
"""The client's errors for a partition without leader; the last because it takes -1 for the leader's id."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Topics:
    """The topics that the source reads now.

    Their partitions, their ids (where the broker has ids), and the topics of the source's list that do not
    exist.
    """

    partitions: tuple[Partition, ...]
    topic_ids: Mapping[str, str]
    missing: tuple[str, ...] = ()
    near: Mapping[str, str] = field(default_factory=dict, compare=False)
    """For missing topics the one that exists and has the most similar name, where there is one."""

    def did_you_mean(self, names: Iterable[str]) -> str:
        """A question for the end of a message about missing topics; empty where no name is similar."""
        found = [f"'{self.near[name]}'" for name in names if name in self.near]
        return f"; did you mean {', '.join(dict.fromkeys(found))}?" if found else ""

    def only(self, names: Collection[str]) -> Topics:
        """The part that concerns these topics."""
        return Topics(
            tuple(part for part in self.partitions if part[0] in names),
            {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in names},
            tuple(topic for topic in self.missing if topic in names),
            self.near,
        )


class Cluster(Protocol):
    """The planner's questions; implemented by `KafkaCluster`, and by a double in tests."""

    def topics(self) -> Topics:
        """The partitions of the source's topics. Raises SourceError, as all questions do."""

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first available offset of each; partitions that no longer exist are left out."""

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last readable record of each; partitions that no longer exist are left out."""

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset whose record is not older than `timestamp_ms`; the latest where there is none."""

    def close(self) -> None:
        """Closes the connections; safe to call twice."""


class KafkaCluster:
    """A `Cluster` on real brokers. Connects on first use; use it from one thread."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._admin: KafkaAdminClient | None = None

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self) -> Topics:
        """See Cluster.topics."""
        names = self._source.topics
        if names is None:
            pattern = re.compile(self._source.topic_pattern or "")
            names = tuple(
                sorted(name for name in self._ask(lambda a: a.list_topics()) if pattern.fullmatch(name))
            )
            if not names:
                return Topics((), {})
        described = self._describe(tuple(names))
        missing = tuple(name for name in names if name not in described and self._source.topics is not None)
        partitions = tuple(
            (name, part["partition_index"])
            for name, topic in sorted(described.items())
            for part in sorted(topic["partitions"], key=lambda part: part["partition_index"])
        )
        found = {name: id_text(topic.get("topic_id")) for name, topic in described.items()}
        ids = {name: topic_id for name, topic_id in found.items() if topic_id}
        return Topics(partitions, ids, missing, self._near(missing))

    def _near(self, missing: Iterable[str]) -> dict[str, str]:
        """The existing topic nearest to each missing one. Best effort: it is only for messages."""
        if not missing:
            return {}
        try:
            known = self._ask(lambda admin: admin.list_topics())
        except SourceError:
            return {}
        return {name: near for name in missing if (near := suggestion(name, known))}

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See Cluster.earliest."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See Cluster.latest."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """See Cluster.at_time."""
        wanted = list(partitions)
        found = self._offsets(wanted, timestamp_ms)
        late = [part for part, offset in found.items() if offset < 0]
        return {**found, **self.latest(late)}

    def close(self) -> None:
        """See Cluster.close."""
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(KafkaError, OSError):
                admin.close()

    def _describe(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Topic name -> description; waits a little for topics that are just being created or moved."""
        for attempt in range(_ATTEMPTS):
            topics = self._ask(lambda a: a.describe_topics(list(names)))
            codes = {topic["name"]: topic["error_code"] for topic in topics}
            if not _TRANSIENT & set(codes.values()):
                break
            clock.sleep(0.2 * (attempt + 1))
        for name, code in codes.items():
            if code not in (0, _UNKNOWN_TOPIC):
                raise SourceError(
                    f"Kafka at {self._source.bootstrap_servers} refuses to describe topic {name} (error "
                    f"code {code})"
                )
        return {topic["name"]: topic for topic in topics if topic["error_code"] == 0}

    def _offsets(self, partitions: Iterable[Partition], spec: int) -> dict[Partition, int]:
        wanted = {TopicPartition(*part): spec for part in partitions}
        level = (
            IsolationLevel.READ_COMMITTED
            if self._source.settings.isolation_level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        if not wanted:
            return {}
        try:
            found = self._ask(lambda a: a.list_partition_offsets(wanted, level))
        except UnknownTopicOrPartitionError:
            existing = set(self._existing({part.topic for part in wanted}))
            wanted = {part: spec for part in wanted if (part.topic, part.partition) in existing}
            if not wanted:
                return {}
            found = self._ask(lambda a: a.list_partition_offsets(wanted, level))
        return {(part.topic, part.partition): answer.offset for part, answer in found.items()}

    def _existing(self, names: set[str]) -> Iterable[Partition]:
        for name, topic in self._describe(tuple(sorted(names))).items():
            for part in topic["partitions"]:
                yield name, part["partition_index"]

    def _ask(self, question: Callable[[KafkaAdminClient], _Answer]) -> _Answer:
        """One question, repeated while the broker with the answer is away and others are not."""
        name = "bootstrap_timeout_ms"
        wait_seconds = admin_arguments(self._source).get(name, KafkaAdminClient.DEFAULT_CONFIG[name]) / 1000
        deadline = clock.monotonic() + wait_seconds
        while True:
            try:
                return self._ask_once(question)
            except _LeaderAway as away:
                if clock.monotonic() > deadline:
                    raise SourceError(
                        f"Kafka at {self._source.bootstrap_servers} answers, but for {wait_seconds:g} s not "
                        f"the leader of a partition ({type(away.__cause__).__name__}: {away.__cause__}); "
                        "bring its broker back, or wait longer with kafka.bootstrap.timeout.ms"
                    ) from away.__cause__
                clock.sleep(_LOOK_SECONDS)

    def _ask_once(self, question: Callable[[KafkaAdminClient], _Answer]) -> _Answer:
        """One question; after a broken connection it is repeated once on a new one. Raises _LeaderAway.

        A connection that cannot be established has already had its bootstrap timeout, and is not tried again.
        """
        for attempt in (1, 2):
            connected = self._admin is not None
            try:
                if self._admin is None:
                    self._admin = KafkaAdminClient(**admin_arguments(self._source))
                    refuse_topic_creation(self._admin)
                    bulk_problem()  # so that the driver's log has it at the start
                    connected = True
                return question(self._admin)
            except UnknownTopicOrPartitionError:
                raise
            except _NO_LEADER as error:
                self.close()  # this forgets the brokers that it knew
                raise _LeaderAway from error
            except TopicAuthorizationFailedError as error:
                raise SourceError(
                    f"Kafka at {self._source.bootstrap_servers} does not let this user read {error}"
                ) from error
            except (KafkaError, OSError, ValueError, AssertionError) as error:
                self.close()
                if attempt == 2 and connected and isinstance(error, KafkaConnectionError):
                    raise _LeaderAway from error
                if attempt == 2 or not connected or not getattr(error, "retriable", False):
                    raise SourceError(
                        f"Kafka at {self._source.bootstrap_servers} cannot be asked: "
                        f"{named_error(error)}{token_problem(self._source.settings.client)}; check that the "
                        "broker runs, that its advertised address can be reached from here, and the "
                        "kafka.security options"
                    ) from error
        raise AssertionError("unreachable")


class _LeaderAway(Exception):
    """Brokers answer, but a partition has no leader, or one that cannot be reached; the cause says which."""


def admin_arguments(source: KafkaSource) -> dict[str, Any]:
    """kafka-python keywords of an admin client for `source`: the client options that it has."""
    given = {
        key: value for key, value in source.settings.client.items() if key in KafkaAdminClient.DEFAULT_CONFIG
    }
    return {"client_id": "streamlake", **given, "bootstrap_servers": source.servers}
