"""`jobs/`: the entry points, started as a user of a cluster starts them, by spark-submit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from streamlake import load_table
from tests.helpers.command_line import environment
from tests.helpers.spark import ROOT, UNCOMPILED

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker

PIPELINE = """
source:
  files: {{path: {home}/in, schema: "id long, name string"}}
sink: {{table: {home}/table, create: true}}
checkpoint: {home}/checkpoint
trigger: available-now
"""


def submit(job: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run one of the jobs on a local master of two threads."""
    spark_home = Path(pyspark.__file__).parent
    settings = [part for setting in UNCOMPILED.items() for part in ("--conf", "=".join(setting))]
    command = [spark_home / "bin" / "spark-submit", "--master", "local[2]", *settings]
    command += [ROOT / "jobs" / job, *arguments]
    return subprocess.run(
        [str(part) for part in command],
        env=environment(
            {
                "SPARK_HOME": str(spark_home),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )


def land(home: Path, name: str, ids: range) -> None:
    (home / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": ids, "name": [f"n{at}" for at in ids]}), home / "in" / name)


def ids(home: Path) -> list[int]:
    return sorted(load_table(home / "table").scan().to_arrow()["id"].to_pylist())


@pytest.mark.spark
def test_append(tmp_path: Path) -> None:
    arguments = ["--source", tmp_path / "in", "--table", tmp_path / "table"]
    arguments += ["--checkpoint", tmp_path / "checkpoint", "--partition-by", "bucket(2, id)"]
    land(tmp_path, "a.parquet", range(100))
    done = submit("append.py", *arguments, "--files-per-checkpoint", 1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "committed" in done.stdout
    land(tmp_path, "b.parquet", range(100, 150))
    assert submit("append.py", *arguments).returncode == 0
    assert ids(tmp_path) == list(range(150))
    assert str(load_table(tmp_path / "table").spec.fields[0].transform) == "bucket[2]"


@pytest.mark.spark
def test_pipeline(tmp_path: Path) -> None:
    land(tmp_path, "a.parquet", range(100))
    (tmp_path / "p.yaml").write_text(PIPELINE.format(home=tmp_path))
    done = submit("pipeline.py", tmp_path / "p.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    assert ids(tmp_path) == list(range(100))


@pytest.mark.kafka
def test_kafka_append(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("job-orders", partitions=2)
    kafka_broker.produce(
        "job-orders", [json.dumps({"id": at, "name": f"n{at}"}).encode() for at in range(500)]
    )
    arguments = ["--bootstrap-servers", kafka_broker.bootstrap_servers, "--topics", "job-orders"]
    arguments += ["--table", tmp_path / "table", "--checkpoint", tmp_path / "checkpoint", "--interval", "now"]
    arguments += ["--schema", "id long not null, name string", "--option", "max-offsets-per-trigger=200"]
    done = submit("kafka_append.py", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ids(tmp_path) == list(range(500))
    assert len(load_table(tmp_path / "table").snapshots) == 3


@pytest.mark.kafka
def test_kafka_upsert(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("job-changes", partitions=1)
    changes = [{"op": "c", "id": at, "version": 1, "name": f"n{at}"} for at in range(300)]
    changes += [{"op": "d", "id": at, "version": 2} for at in range(100)]
    changes += [{"op": "u", "id": 200, "version": 0, "name": "late"}]
    kafka_broker.produce("job-changes", [json.dumps(change).encode() for change in changes])
    arguments = ["--bootstrap-servers", kafka_broker.bootstrap_servers, "--topics", "job-changes"]
    arguments += ["--table", tmp_path / "table", "--checkpoint", tmp_path / "checkpoint", "--interval", "now"]
    arguments += ["--schema", "op string, id long, version long, name string", "--name", "changes"]
    arguments += ["--key", "id", "--row-kind", "op", "--sequence-by", "version"]
    done = submit("kafka_upsert.py", *arguments, "--option", "max-offsets-per-trigger=300")
    assert done.returncode == 0, done.stderr[-3000:]
    assert ids(tmp_path) == list(range(100, 300))
    table = load_table(tmp_path / "table")
    assert (table.format_version, len(table.snapshots)) == (3, 2)
    assert table.scan("id = 200").to_arrow()["name"].to_pylist() == ["n200"]


@pytest.mark.kafka
def test_cdc(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    """Two change streams become a table each."""
    prefix = kafka_broker.create_topic()
    for table, count in (("customers", 20), ("orders", 30)):
        topic = kafka_broker.create_topic(f"{prefix}.public.{table}", partitions=2)
        events = [
            {"op": "c", "before": None, "after": {"id": at, "name": f"{table} {at}"}} for at in range(count)
        ]
        events += [{"op": "d", "before": {"id": 0, "name": ""}, "after": None}]
        for event in events:
            event["source"] = {"connector": "postgresql", "lsn": 1, "ts_ms": 1}
        keyed = [
            (json.dumps({"id": (each["after"] or each["before"])["id"]}).encode(), json.dumps(each).encode())  # type: ignore[index]
            for each in events
        ]
        kafka_broker.produce(topic, keyed)
    arguments = ["--bootstrap-servers", kafka_broker.bootstrap_servers, "--name", "shop", "--interval", "now"]
    arguments += ["--topic-pattern", rf"{prefix}\.public\.(?P<table>.+)", "--table", f"{tmp_path}/{{table}}"]
    done = submit("cdc.py", *arguments, "--checkpoint", tmp_path / "checkpoint")
    assert done.returncode == 0, done.stderr[-3000:]
    for table, count in (("customers", 20), ("orders", 30)):
        rows = load_table(tmp_path / table).scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == list(range(1, count))
