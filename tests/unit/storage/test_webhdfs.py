"""Files and tables on a real HDFS over HTTP: round trips, races, lost answers, and what is refused."""

from __future__ import annotations

import io as streams
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamlake
from streamlake.catalog.open import create, open_table
from streamlake.errors import (
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage import webhdfs_client
from streamlake.storage.file_io import FileIO
from streamlake.storage.webhdfs import WebHdfsFileIO
from tests.helpers.batch_write import append
from tests.helpers.processes import free_ports
from tests.helpers.request_proxy import FAULTS, request_proxy

if TYPE_CHECKING:
    from tests.helpers.hdfs_server import HdfsServer

SCHEMA = parse_ddl("id long not null, name string")


def io_of(server: HdfsServer) -> WebHdfsFileIO:
    return WebHdfsFileIO(server.settings)


def row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]})


def ids(location: str, settings: dict[str, str]) -> list[int]:
    found = streamlake.load_table(location, catalog=settings).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def test_a_table_that_was_created_again_is_not_written_by_who_knew_the_old_one(
    hdfs_server: HdfsServer,
) -> None:
    settings, location = hdfs_server.settings, f"{hdfs_server.uri}/db/again"
    old = create(location, SCHEMA, catalog=settings)
    for info in list(io_of(hdfs_server).list_prefix(location)):
        io_of(hdfs_server).delete(info.path)
    new = create(location, SCHEMA, catalog=settings)
    with pytest.raises((DataInvalidError, TableNotFoundError), match="dropped"):
        append(old, row(7))
    assert open_table(location, settings).uuid == new.uuid != old.uuid
    assert ids(location, settings) == []


def test_files(hdfs_server: HdfsServer) -> None:
    io = io_of(hdfs_server)
    assert isinstance(io, FileIO)
    assert pickle.loads(pickle.dumps(io)) == io
    path = f"{hdfs_server.uri}/files/day=2024-01-01 ü%2F+;&=?#/f.bin"
    assert not io.exists(path)
    assert list(io.list_prefix(f"{hdfs_server.uri}/files")) == []
    for data in (b"hello", b"", b"other"):
        io.write_bytes(path, data)
        assert (io.read_bytes(path), io.size(path), io.exists(path)) == (data, len(data), True)
    [found] = io.list_prefix(f"{hdfs_server.uri}/files/")
    assert (found.path, found.size, found.modified_ms > 0) == (path, 5, True)
    files, directories = io.list_level(f"{hdfs_server.uri}/files")
    assert (files, directories) == ([], [path.rpartition("/")[0]])
    for action in (io.read_bytes, io.open_input, io.size):
        with pytest.raises(MissingFileError, match="there is no such file"):
            action(f"{path}.none")
    with pytest.raises(MissingFileError):
        io.size(path.rpartition("/")[0])
    io.delete(path)
    io.delete(path)
    assert not io.exists(path)


@pytest.mark.parametrize("rows", [10, 3_000_000])
def test_streams(hdfs_server: HdfsServer, rows: int) -> None:
    io, path = io_of(hdfs_server), f"{hdfs_server.uri}/streams/{rows}.parquet"
    numbers = pa.table({"n": pa.array(range(rows), pa.int64())})
    with io.open_output(path) as output:
        pq.write_table(numbers, output, compression="none", use_dictionary=False)
        written = output.tell()
    assert io.size(path) == written
    with io.open_input(path) as source:
        assert pq.read_table(source).equals(numbers)
        source.seek(-4, streams.SEEK_END)
        assert source.read() == b"PAR1"
    with io.open_output(path) as output:
        output.write(b"short")
    assert io.read_bytes(path) == b"short"


def test_one_of_many_creates(hdfs_server: HdfsServer) -> None:
    io = io_of(hdfs_server)

    def won(number: int) -> bool:
        try:
            io.create_exclusive(f"{hdfs_server.uri}/race/{number % 10}", b"the same")
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(won, range(40))) == 10
    assert len(list(io.list_prefix(f"{hdfs_server.uri}/race"))) == 10  # nothing beside them


def test_of_racing_writers_none_is_lost(hdfs_server: HdfsServer) -> None:
    settings, location = hdfs_server.settings, f"{hdfs_server.uri}/db/raced"
    create(location, SCHEMA, catalog=settings, properties={"commit.retry.num-retries": "100"})
    with pytest.raises(TableAlreadyExistsError):
        create(location, SCHEMA, catalog=settings)

    def write(writer: int) -> None:
        for number in range(4):
            append(open_table(location, settings), row(writer * 100 + number))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, range(3)))
    assert ids(location, settings) == sorted(writer * 100 + n for writer in range(3) for n in range(4))
    left = [info.path for info in WebHdfsFileIO(settings).list_prefix(location) if ".tmp" in info.path]
    assert left == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_each_rename_of_a_commit(
    hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A rename is what a commit and the files beside it come into being by. `drop-after`: at every request."""
    monkeypatch.setattr(webhdfs_client, "_PAUSES_S", (0.01, 0.01))
    location = f"{hdfs_server.uri}/db/fault-{fault}"
    with request_proxy(hdfs_server.http) as proxy:
        settings = {**hdfs_server.settings, "hdfs.http-address": proxy.endpoint}
        create(location, SCHEMA, catalog=settings)
        table = open_table(location, settings)
        proxy.fail(-1, fault)
        append(table, row(0))
        written = [0]
        seen = list(proxy.seen)
        chosen = [at for at, (_, path) in enumerate(seen) if fault == "drop-after" or "op=RENAME" in path]
        assert len(chosen) >= 2
        for number, at in enumerate(chosen, 1):
            proxy.fail(at, fault)
            try:
                append(table, row(number))
            except CommitStateUnknownError:
                table = open_table(location, settings)
            except StorageError:
                # Refused as a whole; `409` is no answer of HDFS's, and not asked again.
                assert fault == "409-before"
                table = open_table(location, settings)
                continue
            written.append(number)
        assert ids(location, hdfs_server.settings) == written


def test_what_is_refused(hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs_client, "_PAUSES_S", (0.01,))
    io = io_of(hdfs_server)
    io.write_bytes(f"{hdfs_server.uri}/closed/f", b"x")
    guest = WebHdfsFileIO({**hdfs_server.settings, "hdfs.user": "guest"})
    told = r"creating .*/closed/g: Permission denied: user=guest, access=WRITE.*; give this user access"
    with pytest.raises(StorageError, match=told):
        guest.create_exclusive(f"{hdfs_server.uri}/closed/g", b"x")
    with pytest.raises(StorageError, match="Permission denied: user=guest"):
        create(f"{hdfs_server.uri}/closed/t", SCHEMA, catalog=dict(guest.properties))
    assert [info.path for info in io.list_prefix(f"{hdfs_server.uri}/closed")] == [
        f"{hdfs_server.uri}/closed/f"
    ]
    [nobody] = free_ports(1)
    down = {"hdfs.http-address": f"127.0.0.1:{nobody}"}
    with pytest.raises(
        StorageError, match=rf"http://127\.0\.0\.1:{nobody} does not answer.*hdfs\.http-address"
    ):
        open_table(f"{hdfs_server.uri}/db/t", down)
    with pytest.raises(InvalidOptionError, match=r"without a host.*hdfs\.http-address"):
        open_table("hdfs:///db/t", {"hdfs.user": "x"})
    # The second of two addresses answers where the first is down.
    both = {**hdfs_server.settings, "hdfs.http-address": f"127.0.0.1:{nobody}, {hdfs_server.http}"}
    assert WebHdfsFileIO(both).read_bytes(f"{hdfs_server.uri}/closed/f") == b"x"
