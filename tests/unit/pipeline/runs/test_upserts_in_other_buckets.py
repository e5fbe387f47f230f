"""An index that goes from buckets to buckets while a stream runs: the rows stay right, deleted ones stay deleted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.commit.marker import INDEX_STATE
from streamlake.commit.receipt import Outcome
from streamlake.index.bucketing import Bucketing
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.index.state import IndexState
from streamlake.operate.doctor.index_check import check_index
from streamlake.operate.doctor.index_status import index_key, index_status
from streamlake.records import ROW_KIND
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

TEXT = MessageKey("murmur2", (KeyPart(column=0),))
JSON = MessageKey("crc32", (KeyPart(b'{"id":'), KeyPart(column=0, form="json"), KeyPart(b"}")))
BUCKETS = [
    Bucketing(2),
    Bucketing(3, TEXT),
    Bucketing(1),
    Bucketing(2, TEXT),
    Bucketing(4, JSON),
    Bucketing(2),
]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])
Rows = dict[int, tuple[str, int]]


class Stream:
    """Changes of a hundred keys, some deleted, into buckets that are chosen for each checkpoint."""

    def __init__(self, home: Path, delete_mode: str) -> None:
        make_table(home, "id long, name string, v long", format_version=3 if delete_mode == "position" else 2)
        self.location = str(home)
        self.upserts = LocalUpserts(
            self.location, key=["id"], sequence_by=["v"], delete_mode=delete_mode, batch_rows=7
        )
        self.random = random.Random(3)
        self.version = 0
        self.rows: Rows = {}
        self.newest: dict[int, int] = {}

    def use(self, bucketing: Bucketing) -> None:
        setattr(self.upserts.run.owner, "bucketing", lambda state, fields: bucketing)  # noqa: B010

    def changes(self, count: int = 60) -> pa.Table:
        rows = []
        for _ in range(count):
            self.version += 1
            # A fifth of them are older than what is there.
            id_, late = self.random.randrange(100), self.random.random() < 0.2
            version = self.version - 500 if late else self.version
            kind = 3 if self.random.random() < 0.3 else 2
            rows.append((id_, f"n{version}", version, kind))
            if version >= self.newest.get(id_, version):
                self.newest[id_] = version
                if kind == 3:
                    self.rows.pop(id_, None)
                else:
                    self.rows[id_] = (f"n{version}", version)
        columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
        return pa.table([*columns[:3], columns[3].cast(pa.int8())], names=[*SCHEMA.names, ROW_KIND])

    def require_right(self) -> None:
        found = load_table(self.location).scan().to_arrow().to_pylist()
        assert len(found) == len(self.rows)
        assert {row["id"]: (row["name"], row["v"]) for row in found} == self.rows
        table = open_table(self.location)
        check_table(table, files_exist=True)
        status = index_status(table, "main", index_key(table, "main", ("id",), ("v",)))
        check = check_index(table, status)
        assert check.is_good
        assert check.rows == len(self.rows)

    def state(self) -> IndexState:
        table = open_table(self.location)
        assert table.current_snapshot is not None
        path = table.current_snapshot.summary[INDEX_STATE]
        return IndexState.from_bytes(table.io.read_bytes(path), path)


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
def test_buckets_change_while_it_runs(delete_mode: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t", delete_mode)
    for number, bucketing in enumerate([*BUCKETS, *reversed(BUCKETS)]):
        stream.use(bucketing)
        stream.upserts.checkpoint(stream.changes())
        stream.require_right()
        assert stream.state().bucketing == bucketing
        if number % 3 == 0:
            # Another driver goes on with the buckets that there are.
            stream.upserts.restart()
            stream.upserts.checkpoint(stream.changes())
            stream.require_right()
            assert stream.state().bucketing == bucketing


@pytest.mark.parametrize("bucketing", BUCKETS[1:5])
def test_what_is_staged_in_other_buckets_than_the_head(
    bucketing: Bucketing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another writer gets in between, and the successor finds an index in the buckets of before."""
    stream = Stream(tmp_path / "t", "position")
    stream.use(Bucketing(2))
    stream.upserts.checkpoint(stream.changes())
    stream.use(bucketing)
    assert stream.upserts.stage(stream.changes()) is not None
    append(open_table(stream.location), pa.table([[1_000], ["f"], [0]], schema=SCHEMA))
    stream.rows[1_000] = ("f", 0)
    stream.upserts.restart()
    assert stream.upserts.recover()[-1].outcome == Outcome.COMMITTED
    stream.require_right()
    assert stream.state().bucketing == bucketing
    stream.upserts.checkpoint(stream.changes())
    stream.require_right()
    assert not caplog.records


def test_an_index_that_is_lost_between_buckets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(tmp_path / "t", "position")
    stream.use(Bucketing(2))
    stream.upserts.checkpoint(stream.changes(20))
    for run in Path(stream.location, "metadata", "_index").glob("*.run"):
        run.unlink()
    stream.use(Bucketing(3, TEXT))
    # An index that is built from the table has forgotten what was deleted.
    stream.newest = {id_: stream.newest[id_] for id_ in stream.rows}
    stream.upserts.restart()
    stream.use(Bucketing(3, TEXT))
    stream.upserts.checkpoint(stream.changes(20))
    stream.require_right()
    assert "is built anew from the table" in caplog.text
    assert stream.state().bucketing == Bucketing(3, TEXT)


def test_foreign_rows_come_into_the_buckets(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t", "position")
    stream.use(Bucketing(3, JSON))
    stream.upserts.checkpoint(stream.changes())
    ids: list[Any] = list(range(500, 560))
    append(open_table(stream.location), pa.table([ids, ["f"] * 60, [0] * 60], schema=SCHEMA))
    stream.rows.update(dict.fromkeys(ids[30:], ("f", 0)))
    replaced = pa.table([ids[:30], ["r"] * 30, [9_999] * 30], schema=SCHEMA)
    stream.upserts.checkpoint(replaced)
    stream.rows.update(dict.fromkeys(ids[:30], ("r", 9999)))
    stream.require_right()
