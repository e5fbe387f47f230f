"""A stream into a table whose catalog vends credentials that live for 30 s: it goes on for longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from streamlake import clock, load_table
from streamlake.catalog.open import create, open_table
from streamlake.errors import StorageError
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.object_store import S3Server, s3_server
from tests.helpers.vending import VendingServer, vending_server

pytestmark = pytest.mark.filterwarnings("ignore")
LIFE_MS = 30_000


class Time:
    """The time of the stream, the catalog and the storage, which moves when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture(scope="module")
def storage() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(clock, "now_ms", made.now_ms)
    return made


@pytest.fixture
def server(storage: S3Server, time: Time, tmp_path: Path) -> Iterator[VendingServer]:
    sql = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": f"s3://lake/{tmp_path.name}",
        **storage.properties,
    }
    create("db.t", parse_ddl("id long, v string"), catalog=sql)
    with vending_server(load_catalog("default", **sql), storage, LIFE_MS, time.now_ms) as running:
        yield running


def rest(server: VendingServer) -> dict[str, str]:
    return {"type": "rest", "uri": server.uri}


def changes(checkpoint: int) -> pa.Table:
    ids = [(checkpoint * 3 + at) % 20 for at in range(8)]
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{checkpoint}-{at}" for at in range(8)]})


@pytest.mark.parametrize(
    ("delete_mode", "pause_ms"),
    [("position", 10_000), ("position", 40_000), ("equality", 40_000)],
)
def test_checkpoints_for_longer_than_credentials_live(
    server: VendingServer, time: Time, delete_mode: str, pause_ms: int
) -> None:
    """One driver, and after half of the checkpoints its successor."""
    expected: dict[int, str] = {}
    upserts = LocalUpserts(
        "db.t", key=["id"], delete_mode=delete_mode, opened=lambda name: open_table(name, rest(server))
    )
    for checkpoint in range(6):
        if checkpoint == 3:
            upserts.restart()
        rows = changes(checkpoint)
        receipt = upserts.checkpoint(rows)
        assert receipt is not None
        expected.update(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
        time.ms += pause_ms
    assert server.refused == 0
    found = load_table("db.t", catalog=rest(server)).scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)


def test_a_commit_after_the_credentials_of_what_was_staged(server: VendingServer, time: Time) -> None:
    upserts = LocalUpserts("db.t", key=["id"], opened=lambda name: open_table(name, rest(server)))

    def wait(_: object) -> None:
        time.ms += LIFE_MS + 1

    for checkpoint in range(2):
        assert upserts.checkpoint(changes(checkpoint), between=wait) is not None
    assert server.refused == 0


def test_what_an_expired_token_is_told(server: VendingServer, time: Time) -> None:
    """A task that runs for longer than its credentials live fails; it cannot ask the catalog for others."""
    table = open_table("db.t", rest(server))
    io, path = table.io, f"{table.location}/data/late"
    time.ms += LIFE_MS + 1
    with pytest.raises(
        StorageError,
        match=r"the credentials have expired \(ExpiredToken.*live longer than a checkpoint takes",
    ):
        io.write_bytes(path, b"x")
    table.io.write_bytes(path, b"x")
    assert server.refused == 1
