"""Sessions of other kinds than the shared one: without any jar, and with executors that are processes of their own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader
from tests.helpers.spark import LOCAL_CLUSTER, ROOT, cluster_home, run_driver, spark_environment
from tests.test_project import INSTALLED_ELSEWHERE

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker

PROGRAM = Path(__file__).with_name("plain_session.py")


@pytest.mark.spark
def test_plain_session_needs_no_jar(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    answer = _run(tmp_path, "local[2]", PYTHONPATH=_with_lookups(tmp_path))
    assert answer["jars"] == ""
    assert answer["daemons"] == 1
    _check(tmp_path, answer, duckdb_reader)


@pytest.mark.cluster
def test_executors_in_other_processes(
    tmp_path: Path, duckdb_reader: DuckDbReader, kafka_broker: KafkaBroker
) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    for part in range(2):
        values = (json.dumps({"id": number, "part": part}).encode() for number in range(part, 3000, 2))
        kafka_broker.produce(topic, values, partition=part)
    answer = _run(
        tmp_path,
        LOCAL_CLUSTER,
        kafka_broker.bootstrap_servers,
        topic,
        SPARK_HOME=str(cluster_home(tmp_path / "spark-home")),
        PYTHONPATH=_with_lookups(tmp_path),
    )
    assert answer["daemons"] == 2
    assert (tmp_path / "spark-home" / "work").is_dir()
    _check(tmp_path, answer, duckdb_reader)
    check_table(open_table(str(tmp_path / "direct")), files_exist=True)
    assert len(load_table(str(tmp_path / "direct")).snapshots) == 3
    for name, expected in {"direct": range(3000), "shaped": range(1, 3000, 2)}.items():
        ids = load_table(str(tmp_path / name)).scan(columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(ids) == list(expected)


def _with_lookups(home: Path) -> str:
    """A Python path where Spark finds the data sources by itself, as the wheel installs them."""
    site = home / "site"
    site.mkdir()
    for path, name in INSTALLED_ELSEWHERE.items():
        shutil.copy(ROOT / path, site / name)
    return os.pathsep.join([str(site), spark_environment()["PYTHONPATH"]])


def _run(home: Path, master: str, *arguments: str, **environment: str) -> dict[str, Any]:
    done = run_driver(PROGRAM, home, master, *arguments, home=home / "driver", environment=environment)
    answers = [
        line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")
    ]
    return json.loads(answers[0])


def _check(home: Path, answer: dict[str, Any], duckdb_reader: DuckDbReader) -> None:
    assert (answer["ids"], answer["distinct"], answer["snapshots"]) == (3000, 3000, 3)
    assert answer["read_by_spark"] == 3000
    check_table(open_table(str(home / "table")), files_exist=True)
    counted = duckdb_reader.sql(f"select count(*), sum(id) from {duckdb_reader.relation(home / 'table')}")
    assert [int(column[0].as_py()) for column in counted.columns] == [3000, sum(range(3000))]
