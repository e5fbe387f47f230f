"""A real Kafka broker for tests: one KRaft process on 127.0.0.1, with helpers to make topics and fill them."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import KafkaError

from tests.helpers.jars import KAFKA_BROKER, jars
from tests.helpers.processes import free_ports, is_listening, stop, tail
from tests.helpers.rings import PartUnavailableError

Record = tuple[bytes | None, bytes | None] | bytes
"""A value, or a (key, value) pair."""

_START_TIMEOUT_SECONDS = 60
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
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
auto.create.topics.enable=false
delete.topic.enable=true
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=2097152
"""


class KafkaBroker:
    """A running broker. `bootstrap_servers` is what clients connect to; `log` is its log file.

    One in the `home` of a former one has its data and its ports.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "broker.log"
        self._config = home / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = _ports_of(self._config) or free_ports(2)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Format the storage on first use, start the process, return when clients can list topics."""
        java, class_path = _java(), ":".join(map(str, jars(KAFKA_BROKER)))
        self.home.mkdir(parents=True, exist_ok=True)
        flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]
        with open(self.log, "ab") as log:
            if not self._config.exists():
                self._config.write_text(
                    _PROPERTIES.format(
                        port=self._port, controller=self._controller_port, data=self.home / "data"
                    )
                )
                cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
                command = [
                    java,
                    *flags,
                    "kafka.tools.StorageTool",
                    "format",
                    "-t",
                    cluster,
                    "-c",
                    str(self._config),
                ]
                subprocess.run(command, check=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            self._process = subprocess.Popen(
                [java, *flags, "kafka.Kafka", str(self._config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except PartUnavailableError:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process; the data stays, so `start` brings the same broker back on the same port."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create_topic(
        self, topic: str | None = None, partitions: int = 1, config: dict[str, str] | None = None
    ) -> str:
        """Create `topic` (a fresh name when None) and return its name."""
        topic = topic or f"topic-{uuid.uuid4().hex[:8]}"
        with self.admin() as admin:
            admin.create_topics(
                [NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=config or {})]
            )
        self._wait_for_partitions(topic, partitions)
        return topic

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

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if not is_listening(self._port):
                time.sleep(0.05)
                continue
            try:
                with self.admin() as admin:
                    admin.list_topics()
                return
            except (KafkaError, OSError):
                time.sleep(0.2)
        raise PartUnavailableError(f"the Kafka broker did not start; the end of its log:\n{tail(self.log)}")

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
    listeners = next(line for line in config.read_text().splitlines() if line.startswith("listeners="))
    port, controller = (int(each.rpartition(":")[2]) for each in listeners.split(","))
    return port, controller


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise PartUnavailableError("there is no java on the PATH: install a JDK or JRE, version 17 or newer")
    return java
