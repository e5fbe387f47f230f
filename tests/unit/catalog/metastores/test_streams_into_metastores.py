"""Upserts, with the format version that they have by default, into tables of metastores: restarted, and with answers lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlake.catalog import service
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.open import create, open_table
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import DDL, LocalStream, Record
from tests.helpers.moto_services import AwsServices
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES

SOURCE: list[Record] = [(row % 7, f"v{row}") for row in range(20)]


@pytest.fixture(params=["sql", "glue", "dynamodb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    where = {"warehouse": f"file://{tmp_path}/lake", "name": tmp_path.name}
    if request.param == "sql":
        return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **where}
    aws: AwsServices = request.getfixturevalue("aws")
    return {**getattr(aws, request.param), **where}


def broken_swaps(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers to every other swap are lost: in turn after it was done, and before."""
    opened = service.load_service(catalog)
    assert isinstance(opened, MetastoreCatalog)
    swap: Callable[..., None] = opened.metastore.swap
    swaps: list[str] = []

    def faulty(*arguments: Any) -> None:
        kind = ("done", "lost after", "done", "lost before")[len(swaps) % 4]
        swaps.append(kind)
        if kind != "lost before":
            swap(*arguments)
        if kind.startswith("lost"):
            raise ConnectionResetError("no answer")

    monkeypatch.setattr(opened.metastore, "swap", faulty)
    return swaps


def test_an_upsert_stream_with_lost_answers_and_restarts_has_every_row_once(
    catalog: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {**FAST_RETRIES, **FAST_CHECKS, "commit.status-check.num-retries": "1"}
    create("db.t", parse_ddl(DDL), format_version=3, properties=properties, catalog=catalog)
    swaps = broken_swaps(catalog, monkeypatch)
    for checkpoints in (2, 3, 10**9):
        settings: dict[str, Any] = {"location": "db.t", "catalog": catalog, "step": 2}
        LocalStream(tmp_path, SOURCE, mode="upsert", delete_mode="position", **settings).start(checkpoints)
    table = open_table("db.t", catalog)
    check_table(table, files_exist=True)
    query = LocalStream(tmp_path, SOURCE, mode="upsert", delete_mode="position", **settings)
    assert query.rows() == sorted(dict(SOURCE).items())
    assert table.format_version == 3
    assert {"lost after", "lost before"} <= set(swaps)
    files = {
        path.name for path in Path(table.location.removeprefix("file://"), "metadata").glob("*.metadata.json")
    }
    log = {entry.metadata_file.rpartition("/")[2] for entry in table.metadata.metadata_log}
    assert log < files, "no metadata file that the table refers to was deleted"
