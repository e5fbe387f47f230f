"""Streams of the format "streamlake" beside Iceberg's own stream and batches: each strategy, on each kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake.pipeline.iceberg.frames.iceberg_data_source import register
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable, create_table
from tests.unit.pipeline.iceberg.table_streams import add, compact, tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_SECONDS = 240
AGAIN = ("table-scan-then-incremental", "incremental-from-latest-snapshot-exclusive")


@pytest.fixture(scope="module", autouse=True)
def _registered(iceberg_spark: SparkSession) -> None:
    register(iceberg_spark)


class Peers:
    """One table and one branch of it, read by both."""

    def __init__(self, spark: SparkSession, home: Path, name: str, branch: str) -> None:
        self.spark = spark
        self.home = home
        self.table: LoadedTable = create_table(home / name, "id long, category string")
        self.branch = {} if branch == "main" else {"branch": branch}

    def ours(self, checkpoint: str, **options: Any) -> list[int]:
        """What a run of a stream reads, which goes on from its checkpoint."""
        named = {key.replace("_", "-"): str(value) for key, value in options.items()}
        reader = self.spark.readStream.format("streamlake").option("monitor-interval", "0 ms")
        return self._streamed(reader.options(**named, **self.branch).load(self.table.location), checkpoint)

    def their_stream(self, **options: Any) -> list[int]:
        """What Iceberg's stream reads from its start on; nothing of a branch, because it reads main only."""
        if self.branch:
            return []
        named = {key.replace("_", "-"): str(value) for key, value in options.items()}
        reader = self.spark.readStream.format("iceberg").options(**named)
        found = reader.load(f"file://{self.table.location}")
        return self._streamed(found, f"theirs{len(list(self.home.iterdir()))}")

    def their_batch(self, **options: Any) -> list[int]:
        """What Iceberg's batch reads."""
        named = {key.replace("_", "-"): str(value) for key, value in options.items()}
        reader = self.spark.read.format("iceberg").options(**named)
        return sorted(row[0] for row in reader.load(f"file://{self.table.location}").select("id").collect())

    def _streamed(self, found: DataFrame, checkpoint: str) -> list[int]:
        ids: list[int] = []

        def take(rows: Any, batch_id: int) -> None:
            del batch_id
            ids.extend(row[0] for row in rows.select("id").collect())

        writer = found.writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.home / checkpoint)).start()
        assert query.awaitTermination(RUN_SECONDS)
        return sorted(ids)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_table_with_rows(iceberg_spark: SparkSession, tmp_path: Path, branch: str) -> None:
    peers = Peers(iceberg_spark, tmp_path, "t", branch)
    table = peers.table
    ids = [add(table, number) for number in range(2)]
    if branch == "dev":
        ManageRefs(table.table).create_branch("dev", ids[1]).commit()
        table.refresh()
        add(table, 50)
    ids += [add(table, number, branch=branch) for number in range(2, 4)]
    if branch == "main":
        compact(table)
    ids.append(add(table, 4, branch=branch))
    tag(table, "third", ids[2])
    head = ids[-1]
    before_head = table.metadata.snapshot(head).parent_snapshot_id
    moment = table.metadata.snapshot(ids[2]).timestamp_ms
    current = {"branch": branch}
    expected = {
        "table-scan-then-incremental": ({}, peers.their_batch(**current)),
        "incremental-from-earliest-snapshot": ({}, peers.their_stream() or peers.their_batch(**current)),
        "incremental-from-snapshot-timestamp": (
            {"start_snapshot_timestamp": moment},
            peers.their_stream(stream_from_timestamp=moment)
            or peers.their_batch(start_snapshot_id=ids[1], end_snapshot_id=head),
        ),
        "incremental-from-latest-snapshot": (
            {},
            peers.their_batch(start_snapshot_id=before_head, end_snapshot_id=head),
        ),
        "incremental-from-snapshot-id": (
            {"start_tag": "third"},
            peers.their_batch(start_snapshot_id=ids[1], end_snapshot_id=head),
        ),
        "incremental-from-latest-snapshot-exclusive": ({}, []),
    }
    assert [len(rows) for _, rows in expected.values()] == [5, 5, 3, 1, 3, 0]
    found = {}
    for strategy, (options, _) in expected.items():
        found[strategy] = peers.ours(strategy, starting_strategy=strategy, **options)
    assert found == {strategy: rows for strategy, (_, rows) in expected.items()}
    bounded = peers.ours("to", start_snapshot_id=ids[1], end_tag="third")
    assert bounded == peers.their_batch(start_snapshot_id=ids[0], end_snapshot_id=ids[2]) == [1, 2]
    assert peers.ours("scan", end_snapshot_id=ids[2]) == peers.their_batch(versionAsOf=ids[2]) == [0, 1, 2]
    add(table, 60, branch=branch)
    assert [peers.ours(strategy, starting_strategy=strategy) for strategy in AGAIN] == [[60], [60]]
    assert peers.ours("to", start_snapshot_id=ids[1], end_tag="third") == []


@pytest.mark.timeout(900)
def test_an_empty_table(iceberg_spark: SparkSession, tmp_path: Path) -> None:
    peers = Peers(iceberg_spark, tmp_path, "t", "main")
    strategies = (*AGAIN, "incremental-from-earliest-snapshot", "incremental-from-latest-snapshot")
    for strategy in strategies:
        assert peers.ours(strategy, starting_strategy=strategy) == []
    add(peers.table, 1)
    add(peers.table, 2)
    theirs = peers.their_stream()
    assert theirs == [1, 2]
    for strategy in strategies:
        assert peers.ours(strategy, starting_strategy=strategy) == theirs
