"""Streams from a broker into tables that are opened by their path on an S3 server, restarted in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table, verify
from streamlake.operate.status.status import status_of_table
from tests.helpers.kafka_stream import KafkaStream
from tests.helpers.object_store import S3Server, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("append", {}),
        ("position", {"mode": "upsert", "key": ["id"], "format_version": 3}),
        ("equality", {"mode": "upsert", "key": ["id"], "format_version": 2, "delete_mode": "equality"}),
    ],
)
def test_a_table_by_its_path(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    server: S3Server,
    tmp_path: Path,
    name: str,
    given: dict[str, Any],
) -> None:
    stream = KafkaStream(kafka_broker, tmp_path, partitions=2)
    stream.location = f"s3://lake/db/{name}"
    settings = server.properties
    rejects = {"on_error": "reject"} if name != "equality" else {}
    names: dict[int, str] = {}
    for round_ in range(3):
        # Later rounds replace rows of the ones before; an append has them beside each other.
        first = 0 if given else round_ * 60
        written = dict.fromkeys(range(first + round_ * 10, first + 60), f"r{round_}")
        for number, text in written.items():
            record = f'{{"id": {number}, "name": "{text}"}}'.encode()
            kafka_broker.produce(stream.topic, [(str(number).encode(), record)], partition=number % 2)
        names.update(written)
        if rejects:
            kafka_broker.produce(stream.topic, [(b"x", b"{")], partition=0)
        stream.run(stream.sink(catalog=settings, pipeline="p", **given, **rejects))
        stream.run(stream.sink(catalog=settings, pipeline="p", **given, **rejects))
        found = load_table(stream.location, catalog=settings).scan().to_arrow().to_pydict()
        assert dict(zip(found["id"], found["name"], strict=True)) == names
        assert len(found["id"]) == len(names)
    if rejects:
        kept = load_table(f"{stream.location}__rejects", catalog=settings).scan().to_arrow()
        assert kept.num_rows == 3
    result = verify(stream.location, stream.source(), catalog=settings, **_of(given))
    assert (result.is_equal, result.rejected) == (True, 3 if rejects else 0)
    with status_of_table(
        stream.location, catalog=settings, bootstrap_servers=kafka_broker.bootstrap_servers
    ) as reader:
        [table] = reader.read().tables
    # Equality deletes hide how many rows live.
    assert table.live_rows == (None if name == "equality" else len(names))


def _of(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("mode", "key") if name in given}
