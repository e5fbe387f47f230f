"""A checkpoint of an upsert stream while a request to its catalog fails, each one in turn: nothing is lost, doubled or torn."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hive_metastore import ttypes as types
from pyiceberg.catalog import load_catalog

from streamlake.catalog import service
from streamlake.catalog.open import create, open_table
from streamlake.errors import StreamlakeError
from streamlake.read.scan import TableScan
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers import connection_proxy as connections
from tests.helpers import request_proxy as requests
from tests.helpers.connection_proxy import ConnectionProxy, connection_proxy
from tests.helpers.hive_server import HiveServer
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import DDL, LocalStream
from tests.helpers.moto_services import AwsServices
from tests.helpers.postgres import PostgresServer
from tests.helpers.request_proxy import RequestProxy, request_proxy
from tests.helpers.rest_catalog import RestServer
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES

pytestmark = pytest.mark.filterwarnings("ignore")
SOURCE = [(number % 4, f"v{number}") for number in range(6)]
PROPERTIES = {**FAST_RETRIES, **FAST_CHECKS, "commit.status-check.num-retries": "1"}
QUICK_LOCKS = {
    "iceberg.hive.lock-check-min-wait-ms": "5",
    "iceberg.hive.lock-check-max-wait-ms": "50",
    "iceberg.hive.lock-creation-min-wait-ms": "5",
    "iceberg.hive.lock-creation-max-wait-ms": "50",
    "iceberg.hive.lock-creation-timeout-ms": "2000",
    "iceberg.hive.lock-timeout-ms": "4000",
}


@dataclass
class Reached:
    """A catalog as it is (`direct`), and by a proxy. `least` requests belong to a checkpoint."""

    direct: dict[str, str]
    by_proxy: dict[str, str]
    proxy: RequestProxy | ConnectionProxy
    least: int


@pytest.fixture
def glue(aws: AwsServices) -> Iterator[Reached]:
    with request_proxy(aws.endpoint) as proxy:
        yield Reached(aws.glue, {**aws.glue, "glue.endpoint": proxy.endpoint}, proxy, 2)


@pytest.fixture
def dynamodb(aws: AwsServices) -> Iterator[Reached]:
    with request_proxy(aws.endpoint) as proxy:
        yield Reached(aws.dynamodb, {**aws.dynamodb, "dynamodb.endpoint": proxy.endpoint}, proxy, 2)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Reached]:
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
    with RestServer(load_catalog("default", **sql)).running() as server, request_proxy(server.uri) as proxy:
        yield Reached(sql, {"type": "rest", "uri": proxy.endpoint}, proxy, 2)


@pytest.fixture
def postgresql(postgres_server: PostgresServer) -> Iterator[Reached]:
    with postgres_server.database("faulty"), connection_proxy(postgres_server.port) as proxy:
        uri = "postgresql+psycopg://postgres@127.0.0.1:{}/faulty?sslmode=disable"
        direct = {"type": "sql", "uri": uri.format(postgres_server.port)}
        load_catalog("faulty", **direct)
        yield Reached(direct, {**direct, "uri": uri.format(proxy.port)}, proxy, 6)
        for opened in list(service._opened.values()):
            engine = getattr(getattr(opened, "metastore", None), "_engine", None)
            if engine is not None and "faulty" in str(engine.url):
                engine.dispose()
        with warnings.catch_warnings():
            # Nobody closes a connection that a fault has cut off in the middle of a transaction.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def hive(hive_server: HiveServer) -> Iterator[Reached]:
    with connection_proxy(hive_server.port) as proxy:
        direct = {"type": "hive", "uri": hive_server.uri, **QUICK_LOCKS}
        yield Reached(direct, {**direct, "uri": f"thrift://127.0.0.1:{proxy.port}"}, proxy, 5)


def end_locks(catalog: dict[str, str], name: str) -> None:
    """End the locks of clients that are gone, as the metastore does some minutes later."""
    database, table = name.split(".")
    store = service.load_service(catalog).metastore  # type: ignore[union-attr]
    with store._clients.client() as client:  # type: ignore[attr-defined]
        asked = types.ShowLocksRequest(dbname=database, tablename=table, isExtended=False)
        for lock in client.show_locks(asked).locks or ():
            client.unlock(types.UnlockRequest(lockid=lock.lockid))


def _cases() -> Iterator[tuple[str, str]]:
    for kind in ("glue", "rest"):
        yield from ((kind, fault) for fault in requests.FAULTS)
    yield from (("dynamodb", fault) for fault in ("503", "drop-after", "twice"))
    for kind in ("postgresql", "hive"):
        yield from ((kind, fault) for fault in connections.FAULTS)


@pytest.mark.parametrize(("kind", "fault"), list(_cases()))
def test_a_request_that_fails_loses_and_doubles_nothing(
    kind: str, fault: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reached: Reached = request.getfixturevalue(kind)
    where = {"warehouse": f"file://{tmp_path}/lake", "name": tmp_path.name}
    direct, by_proxy = {**reached.direct, **where}, {**reached.by_proxy, **where}
    if kind == "rest":
        direct = reached.direct
    database = f"db_{abs(hash(tmp_path))}"
    number, is_hit = 0, True
    while is_hit:
        reached.proxy.fail(-1, "")
        name, home = f"{database}.t{number}", tmp_path / str(number)
        home.mkdir()
        create(
            name,
            parse_ddl(DDL),
            format_version=2 if kind == "rest" else 3,
            properties=PROPERTIES,
            catalog=direct,
        )
        made = LocalStream(home, SOURCE, mode="upsert", location=name, catalog=by_proxy)
        made.start(1)
        reached.proxy.fail(number, fault)
        with contextlib.suppress(StreamlakeError):
            made.go_on(1)
        is_hit = reached.proxy.fails_at == -1
        if fault == "late":
            time.sleep(2 * connections.LATE_SECONDS)
            if kind == "hive":
                end_locks(direct, name)
        # A new driver goes on with what the catalog holds.
        made.start()
        table = open_table(name, direct)
        check_table(table, files_exist=True)
        rows = TableScan(table).to_arrow().to_pydict()
        found = dict(zip(rows["id"], rows["v"], strict=True))
        assert len(rows["id"]) == len(found)
        assert found == dict(SOURCE), (number, fault)
        log = [entry.metadata_file for entry in table.metadata.metadata_log]
        assert all(map(table.io.exists, log)), "no metadata file that the table refers to was deleted"
        number += 1
    assert number > reached.least
