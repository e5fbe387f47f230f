"""Iceberg's own Java catalogs and ours on the same tables at once: none of the commits is lost, none is there twice."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers import rings
from tests.helpers.hive_server import HiveServer
from tests.helpers.invariants import check_table
from tests.helpers.jars import SQLITE_JDBC, iceberg_runtime, jars
from tests.helpers.rings import PartUnavailableError
from tests.helpers.spark import started_driver
from tests.helpers.sql_schema import V0
from tests.helpers.tables import FAST_CHECKS

ROWS, VALUES = 10, 40
EACH = ROWS + VALUES
PATIENT = {
    **FAST_CHECKS,
    "commit.retry.num-retries": "100",
    "commit.retry.min-wait-ms": "5",
    "commit.retry.max-wait-ms": "100",
}
WRITER = Path(__file__).with_name("catalog_writer.py")


@pytest.fixture(params=["v0", "v1", "hive"])
def catalogs(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The properties of one catalog, ours and Java's."""
    if request.param == "hive":
        server: HiveServer = request.getfixturevalue("hive_server")
        ours = {"type": "hive", "uri": server.uri, "warehouse": f"file://{tmp_path}/wh", "name": "lake"}
        yield ours, {"type": "hive", "uri": server.uri, "warehouse": f"file://{tmp_path}/wh"}
        return
    database = tmp_path / "catalog.db"
    ours = {
        "type": "sql",
        "uri": f"sqlite:///{database}",
        "warehouse": f"file://{tmp_path}/wh",
        "name": "lake",
    }
    java = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{database}?busy_timeout=20000",
        "warehouse": f"file://{tmp_path}/wh",
        "jdbc.schema-version": request.param.upper(),
    }
    if request.param == "v0":
        with sqlite3.connect(database) as connection:
            for statement in V0:
                connection.execute(statement)
    yield ours, java


def test_both_write_at_once(catalogs: tuple[dict[str, str], dict[str, str]], tmp_path: Path) -> None:
    ours, java = catalogs
    try:
        path = os.pathsep.join(str(jar) for part in (iceberg_runtime(), SQLITE_JDBC) for jar in jars(part))
    except PartUnavailableError as error:
        rings.give_up("interop", error)
    database = f"db_{os.getpid()}_{abs(hash(tmp_path.name))}"
    create_table(f"{database}.t", pa.schema([("id", pa.int64())]), ours, format_version=3, properties=PATIENT)
    home = tmp_path / "spark"
    home.mkdir()
    arguments = (home, path, json.dumps(java), f"lake.{database}.t", ROWS, VALUES)
    table = open_table(f"{database}.t", ours)
    with started_driver(WRITER, *arguments, home=home) as process:
        while not (home / "ready").exists():
            assert process.poll() is None, (home / "stderr").read_text()[-3000:]
            time.sleep(0.05)
        for number in range(EACH):
            UpdateProperties(table).set(f"ours-{number}", "1").commit()
        assert process.wait(200) == 0, (home / "stderr").read_text()[-3000:]
    fresh = open_table(f"{database}.t", ours)
    check_table(fresh)
    rows = load_table(f"{database}.t", ours).scan().to_arrow()["id"].to_pylist()
    assert sorted(rows) == list(range(ROWS))
    assert sum(key.startswith("ours-") for key in fresh.properties) == EACH
    assert sum(key.startswith("java-") for key in fresh.properties) == VALUES
    assert len(fresh.metadata.metadata_log) == 2 * EACH
    names = [entry.metadata_file.rpartition("/")[2][:5] for entry in fresh.metadata.metadata_log]
    assert names == [f"{number:05d}" for number in range(2 * EACH)]
