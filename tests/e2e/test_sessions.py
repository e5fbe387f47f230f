"""Sessions of other kinds than the shared one: without any jar, and with executors that are processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamlake.catalog.open import open_table
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader
from tests.helpers.spark import LOCAL_CLUSTER, cluster_home, run_driver

PROGRAM = Path(__file__).with_name("plain_session.py")


@pytest.mark.spark
def test_plain_session_needs_no_jar(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    answer = _run(tmp_path, "local[2]")
    assert answer["jars"] == ""
    assert answer["daemons"] == 1
    _check(tmp_path, answer, duckdb_reader)


@pytest.mark.cluster
def test_executors_in_other_processes(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    answer = _run(tmp_path, LOCAL_CLUSTER, SPARK_HOME=str(cluster_home(tmp_path / "spark-home")))
    assert answer["daemons"] == 2
    assert (tmp_path / "spark-home" / "work").is_dir()
    _check(tmp_path, answer, duckdb_reader)


def _run(home: Path, master: str, **environment: str) -> dict[str, Any]:
    done = run_driver(PROGRAM, home, master, home=home / "driver", environment=environment)
    answers = [
        line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")
    ]
    return json.loads(answers[0])


def _check(home: Path, answer: dict[str, Any], duckdb_reader: DuckDbReader) -> None:
    assert (answer["ids"], answer["distinct"], answer["snapshots"]) == (3000, 3000, 3)
    check_table(open_table(str(home / "table")), files_exist=True)
    counted = duckdb_reader.sql(f"select count(*), sum(id) from {duckdb_reader.relation(home / 'table')}")
    assert [int(column[0].as_py()) for column in counted.columns] == [3000, sum(range(3000))]
