"""Streams from a broker into tables that are opened by their path on S3, HDFS and Azure, restarted in between.

Azure's emulator comes from npm and is large: its part is opt-in (`-m soak`), and so is what others repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import load_table, verify
from streamlake.catalog.open import open_table
from streamlake.operate.status.status import status_of_table
from tests.helpers import rings
from tests.helpers.azurite import azurite
from tests.helpers.batch_write import append
from tests.helpers.kafka_stream import KafkaStream
from tests.helpers.object_store import s3_server
from tests.helpers.rings import PartUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker
    from tests.helpers.hdfs_server import HdfsServer

MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "position": {"mode": "upsert", "key": ["id"], "format_version": 3},
    "equality": {"mode": "upsert", "key": ["id"], "format_version": 2, "delete_mode": "equality"},
}
OFTEN = {("s3", "append"), ("s3", "position"), ("s3", "equality"), ("hdfs", "position")}
"""What is part of the suite."""


def cases() -> Iterator[Any]:
    for store in ("s3", "hdfs", "azure"):
        for mode in MODES:
            yield pytest.param(
                store,
                mode,
                id=f"{store}-{mode}",
                marks=() if (store, mode) in OFTEN else pytest.mark.soak,
            )


@pytest.fixture
def root(request: pytest.FixtureRequest, store: str) -> tuple[str, dict[str, str]]:
    """The location that tables go below, and the settings that reach it."""
    found: tuple[str, dict[str, str]] = request.getfixturevalue(f"on_{store}")
    return found


@pytest.fixture(scope="module")
def on_s3() -> Iterator[tuple[str, dict[str, str]]]:
    with s3_server() as running:
        yield f"s3://{running.bucket('lake')}", running.properties


@pytest.fixture(scope="module")
def on_hdfs(hdfs_server: HdfsServer) -> tuple[str, dict[str, str]]:
    return f"{hdfs_server.uri}/lake", hdfs_server.settings


@pytest.fixture(scope="module")
def on_azure() -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with azurite() as running:
            yield running.container("lake"), running.properties
    except PartUnavailableError as error:
        rings.give_up("azure", error)


@pytest.mark.parametrize(("store", "name"), list(cases()))
def test_a_table_by_its_path(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    root: tuple[str, dict[str, str]],
    tmp_path: Path,
    store: str,
    name: str,
) -> None:
    given, (home, settings) = MODES[name], root
    stream = KafkaStream(kafka_broker, tmp_path, partitions=2)
    stream.location = f"{home}/db/{name}"
    if store == "hdfs":
        stream.checkpoint = f"{home}/checkpoints/{name}"
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


def test_iceberg_writes_to_and_reads_a_table_on_hdfs(
    iceberg_spark: SparkSession, hdfs_server: HdfsServer
) -> None:
    """Iceberg's Hadoop catalog and ours hold one table, which both append to in turn."""
    catalog = "hdfs_lake"
    warehouse = f"{hdfs_server.uri}/warehouse"
    iceberg_spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    iceberg_spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    iceberg_spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", warehouse)
    iceberg_spark.conf.set(f"spark.sql.catalog.{catalog}.cache-enabled", "false")
    ours = {"type": "hadoop", "warehouse": warehouse, **hdfs_server.settings}
    iceberg_spark.sql(f"create table {catalog}.db.t (id bigint, name string) using iceberg")
    for number in range(0, 4, 2):
        iceberg_spark.sql(f"insert into {catalog}.db.t values ({number}, 'java')")
        table = open_table("db.t", ours)
        append(table, pa.table({"id": pa.array([number + 1], pa.int64()), "name": ["ours"]}))
    expected = [(0, "java"), (1, "ours"), (2, "java"), (3, "ours")]
    found = iceberg_spark.sql(f"select id, name from {catalog}.db.t order by id").collect()
    assert [tuple(row) for row in found] == expected
    read = load_table("db.t", catalog=ours).scan().to_arrow().sort_by("id").to_pydict()
    assert list(zip(read["id"], read["name"], strict=True)) == expected
    hint = iceberg_spark.read.text(f"{warehouse}/db/t/metadata/version-hint.text").collect()
    assert [row.value for row in hint] == ["5"]
