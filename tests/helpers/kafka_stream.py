"""A topic of numbered JSON records on its way into a table: what the Kafka tests under Spark share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from streamlake import IcebergSink, KafkaSource, load_table
from streamlake.errors import TableNotFoundError
from tests.helpers.broker import KafkaBroker
from tests.helpers.processes import wait_until

DDL = "id long, name string"
AVAILABLE_NOW = {"availableNow": True}
CONTINUOUSLY = {"processingTime": "0 seconds"}
RUN_SECONDS = 60


class KafkaStream:
    """A topic, a checkpoint and a table below `home`; `run` streams what is there into the table."""

    def __init__(
        self, broker: KafkaBroker, home: Path, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        self.broker = broker
        self.topic = broker.create_topic(partitions=partitions, config=config)
        self.checkpoint = str(home / "checkpoint")
        self.location = str(home / "table")

    def produce(self, ids: Iterable[int], partition: int = 0, topic: str | None = None, **more: Any) -> None:
        """One record `{"id": n, "name": "n<n>"}` for each of `ids`."""
        self.broker.produce(topic or self.topic, map(value, ids), partition=partition, **more)

    def source(self, **options: object) -> KafkaSource:
        """Options by their names with underscores; `topics`, `topic_pattern`, `schema`, `include`, `format` are
        arguments of the source."""
        names = ("topics", "topic_pattern", "schema", "include", "format", "bootstrap_servers")
        arguments = {name: options.pop(name) for name in names if name in options}
        if not {"topics", "topic_pattern"} & set(arguments):
            arguments["topics"] = self.topic
        given = {"schema": DDL, "bootstrap_servers": self.broker.bootstrap_servers, **arguments}
        return KafkaSource(**given, options={key.replace("_", "-"): text for key, text in options.items()})

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.location, create=True, **options)

    def start(
        self, trigger: dict[str, Any], sink: IcebergSink | None = None, **options: object
    ) -> tuple[Any, IcebergSink]:
        sink = sink or self.sink()
        query = sink.start(self.source(**options), checkpoint_location=self.checkpoint, trigger=trigger)
        return query, sink

    def run(self, sink: IcebergSink | None = None, **options: object) -> IcebergSink:
        """Everything that is there now. Fails when the query does not end by itself."""
        query, sink = self.start(AVAILABLE_NOW, sink, **options)
        try:
            assert query.awaitTermination(RUN_SECONDS), f"still running; last progress: {query.lastProgress}"
        finally:
            query.stop()
        return sink

    def ids(self) -> list[int]:
        """The ids in the table, in order; none when there is no table yet."""
        try:
            return sorted(load_table(self.location).scan(columns=["id"]).to_arrow()["id"].to_pylist())
        except TableNotFoundError:
            return []

    def wait_for_ids(self, ids: Iterable[int], query: Any, timeout_seconds: float = 30) -> None:
        """Until the running query has brought at least as many rows as `ids`, which must then be those."""
        expected = sorted(ids)

        def arrived() -> bool:
            if not query.isActive:
                query.awaitTermination(1)
                raise AssertionError("the query has ended")
            return len(self.ids()) >= len(expected)

        wait_until(arrived, timeout_seconds, f"{len(expected)} rows; there are {len(self.ids())}")
        assert self.ids() == expected

    def recreate_topic(self, partitions: int = 1) -> None:
        """Delete the topic and make another one of the same name."""
        self.broker.delete_topic(self.topic)
        _retry(lambda: self.broker.create_topic(self.topic, partitions))


def value(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}"}).encode()


def _retry(action: Callable[[], object], attempts: int = 20) -> None:
    for attempt in range(attempts):
        try:
            action()
            return
        except KafkaError:
            if attempt == attempts - 1:
                raise
            time.sleep(0.1)
