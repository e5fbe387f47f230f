"""Topic identity: the broker's current id of the topic that a consumer reads.

Asking never creates a topic. Records are fetched by a topic's name, and a topic that was deleted and
recreated has the same name. The broker that leads the partition is asked, which also sent the records: it
learns of a new topic before it opens the new log. So an id that is the same after the last fetch as before
the first one proves that all records in between are of that topic.

Uses private names of kafka-python; where they are not as expected, nothing is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import __version__ as client_version
from kafka.errors import for_code
from kafka.protocol.metadata import MetadataRequest

from streamlake.errors import SourceError
from streamlake.source.offsets import NO_TOPIC_ID

TESTED_CLIENTS = "kafka-python[crc32c,lz4,snappy,zstd]>=3.0,<3.1"
"""As in the package's requirements: the versions whose private names are known."""
_UNKNOWN_TOPIC = 3
_TIMEOUT_MS = 5_000


@dataclass(frozen=True)
class TopicNow:
    """A topic as its broker has it now.

    `topic_id` is empty where the broker has no ids (before Kafka 2.8). A topic that does not exist has no
    partitions.
    """

    topic_id: str
    partitions: frozenset[int]


def topic_now(consumer: KafkaConsumer, partition: TopicPartition) -> TopicNow:
    """The topic of that name as its broker has it now. Raises KafkaError when the broker does not answer."""
    client = consumer._client
    leader = client.cluster.leader_for_partition(partition)
    asked = client.send(None if leader in (None, -1) else leader, _question(partition.topic))
    answer = client._net.run(client._manager.wait_for, asked, _TIMEOUT_MS)
    found = next(iter(answer.topics))
    if found.error_code == _UNKNOWN_TOPIC:
        return TopicNow("", frozenset())
    if found.error_code:
        raise for_code(found.error_code)(partition.topic)
    return TopicNow(id_text(found.topic_id), frozenset(each.partition_index for each in found.partitions))


def id_text(topic_id: Any) -> str:
    """A topic's id as it is stored; empty where the broker gives none."""
    return "" if topic_id is None or str(topic_id) == NO_TOPIC_ID else str(topic_id)


def refuse_topic_creation(client: Any) -> None:
    """Makes metadata requests say that no topic is to be created.

    Otherwise, brokers with auto.create.topics.enable, Kafka's default, create the topics they are asked for.
    kafka-python does not pass on its own option. `client` is a consumer or an admin client. Raises
    SourceError where it cannot be set.
    """
    try:
        client._client.cluster.config["allow_auto_create_topics"] = False
        allowed = client._client.cluster.metadata_request().allow_auto_topic_creation
    except (AttributeError, KeyError, TypeError) as error:
        raise not_known(
            f"it cannot be kept from creating topics ({type(error).__name__}: {error})"
        ) from error
    if allowed is not False:
        raise not_known("it asks brokers to create the topics that it asks for")


def require_topic_questions(consumer: Any) -> None:
    """Raises SourceError where `topic_now` cannot ask through this consumer.

    Without the answer, records of a recreated topic would be taken for those of the old one.
    """
    client = getattr(consumer, "_client", None)
    manager, net = getattr(client, "_manager", None), getattr(client, "_net", None)
    if not (hasattr(net, "run") and hasattr(manager, "wait_for") and hasattr(client, "send")):
        raise not_known("its brokers cannot be asked for the ids of topics")


def not_known(what: str) -> SourceError:
    """The error for a version of kafka-python whose private names are not those that this package uses."""
    return SourceError(
        f"kafka-python {client_version} is not a version that streamlake reads with: {what}. On the driver "
        f"and the executors run: python -m pip install '{TESTED_CLIENTS}'"
    )


def _question(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
