"""A real Kafka broker for tests: one KRaft process on 127.0.0.1, with helpers to make topics and fill them."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import KafkaError

from tests.helpers.jars import KAFKA_BROKER
from tests.helpers.java_server import JavaServer, on_class_path
from tests.helpers.processes import free_ports, is_listening, wait_until

Record = tuple[bytes | None, bytes | None] | bytes
"""A value, or a (key, value) pair."""

_PROPERTIES = """\
process.roles={roles}
node.id={node}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
delete.topic.enable=true
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=2097152
"""


class KafkaBroker:
    """A running broker. `bootstrap_servers` is what clients connect to; its log is `home`/broker.log.

    One in the `home` of a former one has its data and its ports. One that is `beside` another belongs to its cluster, as a
    second broker, node 2; the first, node 1, is also the controller. `more` are
    further properties; the last one of a name counts.
    """

    def __init__(self, home: Path, beside: KafkaBroker | None = None, more: str = "") -> None:
        self.home = home
        self._more = more
        self.node = 1 if beside is None else 2
        self._beside = beside
        self._config = home / "server.properties"
        self._server = JavaServer("the Kafka broker", home, home / "broker.log")
        self._port, self._controller_port = _ports_of(self._config) or (
            free_ports(2) if beside is None else (*free_ports(1), beside._controller_port)
        )

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Format the storage on first use, start the process, return when clients can list topics."""
        self.home.mkdir(parents=True, exist_ok=True)
        options = on_class_path(KAFKA_BROKER)
        if not self._config.exists():
            self._config.write_text(self._properties())
            formatting = ["kafka.tools.StorageTool", "format", "-t", self._cluster(), "-c", str(self._config)]
            self._server.run([*options, *formatting])
        self._server.start([*options, "kafka.Kafka", str(self._config)], self._is_ready)

    def stop(self) -> None:
        """End the process; the data stays, so `start` brings the same broker back on the same port."""
        self._server.stop()

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create_topic(
        self, topic: str | None = None, partitions: int = 1, config: dict[str, str] | None = None
    ) -> str:
        """Create `topic` (a fresh name when None), all of it on this broker, and return its name."""
        topic = topic or f"topic-{uuid.uuid4().hex[:8]}"
        places = {partition: [self.node] for partition in range(partitions)}
        with self.admin() as admin:
            admin.create_topics([NewTopic(topic, replica_assignments=places, topic_configs=config or {})])
        self._wait_for_partitions(topic, partitions)
        return topic

    def take_over(self, topic: str, partition: int = 0) -> None:
        """Make this broker of a cluster the one that has the partition; returns when the others have let it go."""
        moved = TopicPartition(topic, partition)
        with self.admin() as admin:
            refused = admin.alter_partition_reassignments({moved: [self.node]})
            assert refused == {moved: None}, refused
            wait_until(
                lambda: not admin.list_partition_reassignments([moved]), 30, f"{moved} on node {self.node}"
            )

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow `topic` to `total` partitions."""
        with self.admin() as admin:
            admin.create_partitions({topic: NewPartitions(total_count=total)})
        self._wait_for_partitions(topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete `topic` and wait until it is gone."""
        with self.admin() as admin:
            admin.delete_topics([topic])
            for _ in range(200):
                if topic not in admin.list_topics():
                    return
        raise TimeoutError(f"topic {topic} was not deleted")

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Drop the records of `topic` whose offset is below `before[partition]`, as retention would."""
        with self.admin() as admin:
            admin.delete_records({TopicPartition(topic, part): offset for part, offset in before.items()})

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        timestamp_ms: int | None = None,
        **producer_options: object,
    ) -> int:
        """Send `records`, wait until the broker has them all, return how many they were."""
        options: dict[str, object] = {
            "acks": "all",
            "linger_ms": 5,
            "batch_size": 256 * 1024,
            **producer_options,
        }
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)
        try:
            pending = []
            for record in records:
                key, value = record if isinstance(record, tuple) else (None, record)
                pending.append(
                    producer.send(
                        topic,
                        key=key,
                        value=value,
                        partition=partition,
                        headers=list(headers or ()),
                        timestamp_ms=timestamp_ms,
                    )
                )
            producer.flush(60)
            for future in pending:
                future.get(60)
            return len(pending)
        finally:
            producer.close()

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Next offset of each partition of `topic`."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap_servers, group_id=None)
        try:
            parts = [
                TopicPartition(topic, part) for part in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            return {part.partition: offset for part, offset in consumer.end_offsets(parts).items()}
        finally:
            consumer.close()

    def admin(self) -> _Admin:
        """An admin client as a context manager."""
        return _Admin(self.bootstrap_servers)

    def _is_ready(self) -> bool:
        if not is_listening(self._port):
            return False
        try:
            with self.admin() as admin:
                admin.list_topics()
        except (KafkaError, OSError):
            return False
        return True

    def _properties(self) -> str:
        listeners = [f"PLAINTEXT://127.0.0.1:{self._port}"]
        if self._beside is None:
            listeners.append(f"CONTROLLER://127.0.0.1:{self._controller_port}")
        return _PROPERTIES.format(
            roles="broker,controller" if self._beside is None else "broker",
            node=self.node,
            port=self._port,
            controller=self._controller_port,
            listeners=",".join(listeners),
            data=self.home / "data",
        ) + self._more.format(plain=listeners[0], control=f"CONTROLLER://127.0.0.1:{self._controller_port}")

    def _cluster(self) -> str:
        """The id of the cluster that this broker makes, or joins."""
        if self._beside is None:
            return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        written = (self._beside.home / "data" / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in written if line.startswith("cluster.id="))

    def _wait_for_partitions(self, topic: str, partitions: int) -> None:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap_servers, group_id=None)
        try:
            for _ in range(200):
                if len(consumer.partitions_for_topic(topic) or ()) == partitions:
                    return
                time.sleep(0.05)
        finally:
            consumer.close()
        raise TimeoutError(f"topic {topic} did not reach {partitions} partitions")


class _Admin:
    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client: KafkaAdminClient | None = None

    def __enter__(self) -> KafkaAdminClient:
        self._client = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers, request_timeout_ms=10_000)
        return self._client

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()


def _ports_of(config: Path) -> tuple[int, int] | None:
    if not config.exists():
        return None
    settings = dict(line.split("=", 1) for line in config.read_text().splitlines())
    port = settings["listeners"].split(",")[0].rpartition(":")[2]
    return int(port), int(settings["controller.quorum.voters"].rpartition(":")[2])
