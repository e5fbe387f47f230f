from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake.operate.verify.postgres_table import PostgresTable
from tests.helpers import postgres_binaries
from tests.helpers.jars import cache_root
from tests.helpers.postgres_binaries import postgres_part, server_home
from tests.helpers.rings import PartUnavailableError

if TYPE_CHECKING:
    from tests.helpers.postgres import PostgresServer


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMLAKE_TEST_CACHE", str(tmp_path))
    return tmp_path


def fetched(packed: bytes) -> Path:
    """An archive in the cache, as it would have been fetched."""
    home = cache_root() / postgres_part().directory
    home.mkdir()
    with zipfile.ZipFile(home / "server.jar", "w") as archive:
        archive.writestr("postgres.txz", packed)
    return home


def test_a_machine_without_binaries_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_binaries.platform, "machine", lambda: "s390x")
    with pytest.raises(PartUnavailableError, match="s390x"):
        postgres_part()


def test_an_archive_is_unpacked_once(cache: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        program = tarfile.TarInfo("bin/postgres")
        program.mode = 0o755
        archive.addfile(program)
    home = fetched(packed.getvalue())
    program_path = server_home() / "bin" / "postgres"
    assert program_path.stat().st_mode & 0o777 == 0o755
    (home / "server.jar").unlink()
    assert server_home() / "bin" / "postgres" == program_path


def test_a_damaged_archive_is_fetched_anew_the_next_time(cache: Path) -> None:
    home = fetched(b"no archive")
    with pytest.raises(PartUnavailableError, match="cannot be unpacked"):
        server_home()
    assert not home.exists()
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


def test_the_server_runs_and_decodes_its_log(postgres_server: PostgresServer) -> None:
    with postgres_server.database("binaries") as connection:
        connection.execute("set synchronous_commit = on")  # only what is flushed is decoded
        connection.execute("create table people (id int primary key, name text)")
        connection.execute("create publication everything for all tables")
        connection.execute("select pg_create_logical_replication_slot('binaries', 'pgoutput')")
        connection.execute("insert into people values (1, 'Ada')")
        changes = connection.execute(
            "select count(*) from pg_logical_slot_get_binary_changes("
            "'binaries', null, null, 'proto_version', '1', 'publication_names', 'everything')"
        ).fetchone()
        assert changes is not None
        assert changes[0] >= 3
        connection.execute("select pg_drop_replication_slot('binaries')")
        with PostgresTable(postgres_server.dsn("binaries"), "people").opened() as state:
            assert state.key == ("id",)
