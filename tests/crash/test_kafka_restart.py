"""A driver on the direct path is killed and started again: every record of the topic is there once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from tests.crash import crash_points, kafka_driver
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.readers import DuckDbReader
from tests.helpers.spark import run_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

pytestmark = pytest.mark.crash
DRIVER = Path(kafka_driver.__file__)
RECORDS = kafka_driver.PER_CHECKPOINT * kafka_driver.CHECKPOINTS


@pytest.mark.parametrize("point", [crash_points.WRITING, crash_points.SWAPPED])
def test_killed_driver_loses_and_doubles_no_record(
    point: str, spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, duckdb_reader: DuckDbReader
) -> None:
    topic = kafka_broker.create_topic(partitions=kafka_driver.PARTITIONS)
    _produce(kafka_broker, topic, 0, RECORDS)
    servers = kafka_broker.bootstrap_servers
    done = run_driver(DRIVER, tmp_path, point, servers, topic, home=tmp_path / "driver", check=False)
    assert done.returncode == -9, done.stderr[-3000:]
    swapped = point == crash_points.SWAPPED
    crashed = load_table(str(tmp_path / "table"))
    assert len(crashed.snapshots) == crash_points.CRASHING_CHECKPOINT + swapped
    assert _logged(tmp_path, "commits") == list(range(crash_points.CRASHING_CHECKPOINT))
    assert _logged(tmp_path, "offsets") == list(range(crash_points.CRASHING_CHECKPOINT + 1))
    orphans = set(tmp_path.glob("table/data/**/*.parquet"))

    # More has arrived since, which the checkpoint that is done again must not take.
    _produce(kafka_broker, topic, RECORDS, 100)
    sink = kafka_driver.run(tmp_path, servers, topic)
    assert sink.receipts[0].checkpoint_id == crash_points.CRASHING_CHECKPOINT
    assert sink.receipts[0].outcome == (Outcome.SKIPPED if swapped else Outcome.COMMITTED)
    table = open_table(str(tmp_path / "table"))
    check_table(table, files_exist=True)
    added = [int(snapshot.summary["added-records"]) for snapshot in table.snapshots]
    assert added == [kafka_driver.PER_CHECKPOINT] * kafka_driver.CHECKPOINTS + [100]
    ids = [snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots]
    assert ids == [str(number) for number in range(kafka_driver.CHECKPOINTS + 1)]
    total = RECORDS + 100
    read = load_table(str(tmp_path / "table")).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(read) == list(range(total))
    counted = duckdb_reader.sql(
        f"select count(*), count(distinct id) from {duckdb_reader.relation(tmp_path / 'table')}"
    )
    assert [column[0].as_py() for column in counted.columns] == [total, total]
    live = {Path(file.file_path.removeprefix("file://")) for file in live_data_files(table)}
    # What the killed task had written is no part of the table.
    assert bool(orphans - live) is not swapped


def _produce(broker: KafkaBroker, topic: str, first: int, count: int) -> None:
    share = count // kafka_driver.PARTITIONS
    for partition in range(kafka_driver.PARTITIONS):
        ids = range(first + partition * share, first + (partition + 1) * share)
        records = (
            json.dumps({"id": n, "part": n % 2, "payload": f"{n * 2654435761 % 2**32:x}"}).encode()
            for n in ids
        )
        broker.produce(topic, records, partition=partition)


def _logged(home: Path, log: str) -> list[int]:
    return sorted(int(path.name) for path in (home / "checkpoint" / log).iterdir() if path.name.isdigit())
