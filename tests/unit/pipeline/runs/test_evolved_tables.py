"""Others change the key's columns or the partition spec while a checkpoint is staged: no row is doubled, none is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    SchemaMismatchError,
    StagedUnfitError,
)
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import LocalStream
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, make_table

FAST = {**FAST_RETRIES, **FAST_CHECKS}


def keys(first: int, last: int, v: str, **more: int) -> pa.Table:
    ids = pa.array(range(first, last), pa.int32())
    columns = {name: pa.array([value] * len(ids), pa.int32()) for name, value in more.items()}
    return pa.table({"k": ids, **columns, "v": [v] * len(ids)})


def rows(location: str, *columns: str) -> list[tuple[Any, ...]]:
    found = load_table(location).scan().to_arrow()
    check_table(open_table(location), files_exist=True)
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True), key=str)


def widen(location: str, column: str) -> None:
    UpdateSchema(open_table(location)).widen(column, "long").commit()


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("foreign", ["compacts", "appends"])
def test_a_key_that_others_widen_before_the_commit(
    tmp_path: Path, delete_mode: str, version: int, foreign: str
) -> None:
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "k int, v string", (), version, FAST)
    upserts = LocalUpserts(location, key=["k"], delete_mode=delete_mode)
    upserts.checkpoint(keys(0, 6, "old"))

    def others(_: object) -> None:
        widen(location, "k")
        if foreign == "compacts":
            foreign_writers.compact(location, lambda at: True)
        else:
            foreign_writers.append_rows(location, pa.table({"k": [90_000_000_000], "v": ["far"]}))

    upserts.checkpoint(keys(0, 6, "new"), between=others)
    assert upserts.rewrites == 1
    far = [] if foreign == "compacts" else [(90_000_000_000, "far")]
    assert rows(location, "k", "v") == [(k, "new") for k in range(6)] + far
    upserts.checkpoint(keys(0, 3, "newest"))
    assert rows(location, "k", "v") == [(k, "newest" if k < 3 else "new") for k in range(6)] + far


def test_a_sequence_column_that_others_widen_before_the_commit(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "k int, at int, v string", (), 2, FAST)
    upserts = LocalUpserts(location, key=["k"], sequence_by=["at"])
    upserts.checkpoint(keys(0, 6, "old", at=5))

    def others(_: object) -> None:
        widen(location, "at")
        foreign_writers.delete_rows(location, {0, 1, 2}, column="k")
        newer = pa.table({"k": pa.array([0, 1, 2], pa.int32()), "at": [9] * 3, "v": ["theirs"] * 3})
        foreign_writers.append_rows(location, newer)

    upserts.checkpoint(keys(0, 6, "new", at=7), between=others)
    assert rows(location, "k", "v") == [(k, "theirs" if k < 3 else "new") for k in range(6)]


def test_a_key_column_that_others_make_anew_before_the_commit(tmp_path: Path) -> None:
    """The column of this name is another one by now: a row that others wrote under it is not the stream's."""
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "k int, v string", (), 2, FAST)
    upserts = LocalUpserts(location, key=["k"])
    upserts.checkpoint(keys(0, 6, "old"))

    def others(_: object) -> None:
        UpdateSchema(open_table(location)).delete("k").commit()
        UpdateSchema(open_table(location)).add_column("k", "int").commit()
        foreign_writers.append_rows(location, keys(1, 2, "theirs").select(["v", "k"]))

    with pytest.raises(InvalidOptionError, match="has replaced rows"):
        upserts.checkpoint(keys(0, 6, "new"), between=others)
    found = rows(location, "v", "k")
    assert ("theirs", 1) in found
    assert len(found) == 7


def evolved(location: str) -> None:
    foreign_writers.evolve(location, ["bucket(3, k)"])
    foreign_writers.compact(location, lambda at: True)


def test_equality_deletes_of_a_spec_that_others_replace_before_the_commit(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "k int, v string", ("bucket(4, k)",), 2, FAST)
    upserts = LocalUpserts(location, key=["k"], delete_mode="equality")
    upserts.checkpoint(keys(0, 6, "old"))
    with pytest.raises(StagedUnfitError, match="reach only rows of partition spec 0, not those of 1"):
        upserts.checkpoint(keys(0, 6, "new"), between=lambda _: evolved(location))
    assert rows(location, "k", "v") == [(k, "old") for k in range(6)]


def died(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def stream_of(home: Path, **options: Any) -> LocalStream:
    make_table(home / "table", "id long, v string", ("bucket(4, id)",), 2, FAST)
    records = [(number % 3, f"v{number}") for number in range(9)]
    return LocalStream(home, records, mode="upsert", **options)


def staged(running: LocalStream, others: Callable[[str], None]) -> None:
    """One checkpoint is committed, the next one staged by a driver that dies; then others change the table."""
    running.start(1)
    with pytest.MonkeyPatch.context() as patch:
        for run in (SinkRun, UpsertRun):
            patch.setattr(run, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            running.start(1)
    others(running.location)


def test_equality_deletes_of_a_spec_that_was_replaced_while_no_driver_ran(tmp_path: Path) -> None:
    running = stream_of(tmp_path, delete_mode="equality", step=3)
    staged(running, lambda location: foreign_writers.evolve(location, ["bucket(3, id)"]))
    with pytest.raises(FeatureUnsupportedError, match="an equality delete reaches only its own partition"):
        running.start()
    assert running.rows() == [(0, "v0"), (1, "v1"), (2, "v2")]


def test_a_number_of_another_width_has_no_key() -> None:
    codec = KeyCodec(tuple(parse_ddl("k int").fields))
    with pytest.raises(SchemaMismatchError, match="'k' is read as int64"):
        codec.encode([pa.array([1], pa.int64())])
