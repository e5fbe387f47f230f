"""Upserts with wrong input or changed options, without Spark: what is refused loses nothing, what is allowed is right."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import create, open_table
from streamlake.commit.marker import INDEX_STATE
from streamlake.commit.receipt import Outcome
from streamlake.errors import (
    FeatureUnsupportedError,
    IndexDamagedError,
    InvalidOptionError,
    SchemaMismatchError,
    StreamlakeError,
)
from streamlake.records import ROW_KIND
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.batch_write import append
from tests.helpers.error_catalogue import documented
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

Rows = dict[int, tuple[str, int | None]]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_table(tmp_path / "t", "id long, name string, v long, parts list<long>", format_version=3)
    return tmp_path / "t"


def stream(home: Path, checkpoint_id: int = 0, **options: Any) -> LocalUpserts:
    """A driver that goes on at this checkpoint."""
    upserts = LocalUpserts(str(home), **{"key": ["id"], **options})
    upserts.checkpoint_id = checkpoint_id
    return upserts


def changes(rows: Rows, kinds: list[int | None] | None = None) -> pa.Table:
    columns = {
        "id": list(rows),
        "name": [name for name, _ in rows.values()],
        "v": [v for _, v in rows.values()],
    }
    table = pa.table(columns, schema=SCHEMA)
    return table if kinds is None else table.append_column(ROW_KIND, pa.array(kinds, pa.int8()))


def live(home: Path) -> Rows:
    rows = load_table(str(home)).scan(columns=["id", "name", "v"]).to_arrow().to_pylist()
    found = {row["id"]: (row["name"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def refused(home: Path, kind: type[StreamlakeError], attempt: Any) -> str:
    """The message with which `attempt` is refused; the table is what it was."""
    before, rows = open_table(str(home)).current_snapshot, live(home)
    with pytest.raises(kind) as raised:
        attempt()
    assert type(raised.value) is kind
    after = open_table(str(home)).current_snapshot
    assert (before and before.snapshot_id) == (after and after.snapshot_id)
    assert live(home) == rows
    return str(raised.value)


FIRST: Rows = {number: (f"n{number}", number) for number in range(20)}
SECOND: Rows = {number: (f"m{number}", 100 + number) for number in range(10, 30)}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"key": ["idd"]},
            SchemaMismatchError,
            "the key column 'idd' is not a column of the table. Did you mean 'id'",
        ),
        ({"key": ["parts"]}, InvalidOptionError, "'parts'"),
        ({"key": []}, InvalidOptionError, "no key is known: name the columns in key"),
        ({"sequence_by": ["w"]}, SchemaMismatchError, "the sequence_by column 'w'"),
        ({"sequence_by": ["parts"]}, InvalidOptionError, "'parts'"),
    ],
)
def test_columns_that_cannot_be_compared(
    options: dict[str, Any], kind: type[StreamlakeError], message: str, home: Path
) -> None:
    stream(home).checkpoint(changes(FIRST))
    told = refused(home, kind, lambda: stream(home, 1, **options))
    assert message in told
    stream(home, 1).checkpoint(changes(SECOND))
    assert live(home) == {**FIRST, **SECOND}


def test_format_version_1(tmp_path: Path) -> None:
    home = tmp_path / "t"
    make_table(home, "id long, name string, v long", format_version=2)
    [version] = (home / "metadata").glob("v1.metadata.json")
    metadata = json.loads(version.read_text())
    metadata["format-version"] = 1
    version.write_text(json.dumps(metadata))
    told = refused(home, FeatureUnsupportedError, lambda: stream(home))
    documented("feature-unsupported-error", told)
    UpdateProperties(open_table(str(home))).upgrade_format_version(2).commit()
    stream(home).checkpoint(changes(FIRST))
    stream(home, 1).checkpoint(changes(SECOND))
    assert live(home) == {**FIRST, **SECOND}


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write", "equality"])
def test_rows_that_do_not_fit(delete_mode: str, home: Path) -> None:
    upserts = stream(home, sequence_by=["v"], delete_mode=delete_mode)
    upserts.checkpoint(changes(FIRST))
    bad = {5: ("x", 1_000), 6: ("y", None)}
    told = refused(home, SchemaMismatchError, lambda: upserts.checkpoint(changes(bad)))
    assert "column 'v', row " in told
    assert "is null and `sequence_by` needs one" in told
    for kinds in ([2, 9], [2, None]):
        told = refused(
            home,
            SchemaMismatchError,
            lambda kinds=kinds: upserts.checkpoint(changes({5: ("x", 1), 6: ("y", 2)}, kinds)),
        )
        assert "is not a row kind" in told
    upserts.checkpoint_id = 1
    upserts.restart()
    upserts.checkpoint(changes(SECOND))
    assert live(home) == {**FIRST, **SECOND}
    check_table(open_table(str(home)), files_exist=True)


@pytest.mark.parametrize("format_version", [2, 3])
def test_the_delete_mode_may_change_between_runs(format_version: int, tmp_path: Path) -> None:
    """The index is made of live rows, and whatever another mode wrote is another writer's work to it."""
    home = tmp_path / "t"
    make_table(home, "id long, name string, v long", format_version=format_version)
    model: Rows = {}
    modes = ["position", "equality", "position", "copy-on-write", "equality", "copy-on-write", "position"]
    for run, delete_mode in enumerate([*modes, "equality", "equality", "position"]):
        upserts = stream(home, 2 * run, delete_mode=delete_mode)
        for step in range(2):
            rows: Rows = {
                (7 * run + number) % 40: (delete_mode, run + step) for number in range(0, 20, 1 + step)
            }
            kinds = [3 if number % 5 == step else 2 for number in rows]
            upserts.checkpoint(changes(rows, kinds))
            for kind, (number, row) in zip(kinds, rows.items(), strict=True):
                model.pop(number, None)
                if kind == 2:
                    model[number] = row
            assert live(home) == model, f"{delete_mode} in run {run}"
            check_table(open_table(str(home)), files_exist=True)


@pytest.mark.parametrize("after", ["position", "copy-on-write", "equality"])
@pytest.mark.parametrize("before", ["position", "copy-on-write", "equality"])
@pytest.mark.parametrize("format_version", [2, 3])
def test_a_staged_checkpoint_meets_another_delete_mode(
    format_version: int, before: str, after: str, tmp_path: Path
) -> None:
    """And a head that has moved: another job has replaced some of the rows that the checkpoint replaces too."""
    home = tmp_path / "t"
    make_table(home, "id long, name string, v long", format_version=format_version)
    upserts = stream(home, delete_mode=before)
    upserts.checkpoint(changes(FIRST))
    upserts.stage(changes(SECOND))
    other: Rows = dict.fromkeys((3, 12, 25, 1000), ("other", 0))
    stream(home, pipeline="other", job_id="other").checkpoint(changes(other))
    successor = stream(home, 2, delete_mode=after)
    assert successor.recover()[-1].outcome == Outcome.COMMITTED
    expected = {**FIRST, **other, **SECOND}
    assert live(home) == expected
    last: Rows = dict.fromkeys((0, 12, 25, 1000), ("last", 0))
    successor.checkpoint(changes(last))
    assert live(home) == {**expected, **last}
    check_table(open_table(str(home)), files_exist=True)


def test_another_key_is_refused(home: Path) -> None:
    stream(home).checkpoint(changes(FIRST))
    told = refused(home, InvalidOptionError, lambda: stream(home, 1, key=["name"]))
    assert "by the key id so far, and is now started with the key name" in told
    assert "start under another pipeline name" in told
    refused(home, InvalidOptionError, lambda: stream(home, 1, key=["id", "name"], delete_mode="equality"))
    stream(home, 1).checkpoint(changes(SECOND))
    assert live(home) == {**FIRST, **SECOND}


def test_the_order_of_the_key_and_what_orders_changes_may_differ(home: Path) -> None:
    stream(home, key=["id", "name"]).checkpoint(changes(FIRST))
    stream(home, 1, key=["name", "id"]).checkpoint(changes({3: ("n3", 7)}))
    assert live(home) == {**FIRST, 3: ("n3", 7)}
    stream(home, 2, key=["id", "name"], sequence_by=["v"]).checkpoint(changes({3: ("n3", 6), 4: ("n4", 50)}))
    assert live(home) == {**FIRST, 3: ("n3", 7), 4: ("n4", 50)}


def test_another_key_under_another_name(home: Path) -> None:
    """The rows that the old key let in stay; from here on the new one tells them apart, with an index of its own."""
    stream(home).checkpoint(changes({1: ("a", 1), 2: ("a", 2), 3: ("b", 3)}))
    by_name = stream(home, 0, key=["name"], pipeline="by-name", job_id="by-name")
    by_name.checkpoint(changes({10: ("a", 10)}))
    assert live(home) == {10: ("a", 10), 3: ("b", 3)}
    # With the checkpoint directory of the old name too.
    by_name = stream(home, 1, key=["name"], pipeline="renamed")
    by_name.checkpoint(changes({11: ("b", 11)}))
    assert live(home) == {10: ("a", 10), 11: ("b", 11)}
    check_table(open_table(str(home)), files_exist=True)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_staged_checkpoint_meets_another_key(foreign: bool, home: Path) -> None:
    """Where nobody else has committed it is committed as it is; else its index runs are of no use to the new key."""
    upserts = stream(home)
    upserts.checkpoint(changes(FIRST))
    upserts.stage(changes(SECOND))
    if foreign:
        append(open_table(str(home)), changes({1_000: ("f", 0)}))
    other = stream(home, 2, key=["name"], pipeline="by-name")
    if not foreign:
        assert other.recover()[-1].outcome == Outcome.COMMITTED
        assert live(home) == {**FIRST, **SECOND}
        return
    told = refused(home, IndexDamagedError, other.recover)
    assert "with the key id, and other writers have committed since; with the key name" in told
    assert stream(home, 2).recover()[-1].outcome == Outcome.COMMITTED
    assert live(home) == {**FIRST, **SECOND, 1_000: ("f", 0)}


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_staged_checkpoint_meets_another_number_of_buckets(tasks: int, home: Path) -> None:
    """The index is lost, and a driver with other parallelism builds a new one while it commits what was staged."""
    upserts = stream(home, tasks=2)
    upserts.checkpoint(changes(FIRST))
    upserts.stage(changes(SECOND))
    table = open_table(str(home))
    Path(table.current_snapshot.summary[INDEX_STATE]).unlink()
    append(table, changes({1_000: ("f", 0)}))
    successor = stream(home, 2, tasks=tasks)
    assert successor.recover()[-1].outcome == Outcome.COMMITTED
    expected = {**FIRST, **SECOND, 1_000: ("f", 0)}
    assert live(home) == expected
    last: Rows = dict.fromkeys((0, 15, 25, 1000), ("last", 0))
    successor.checkpoint(changes(last))
    assert live(home) == {**expected, **last}


def test_equality_with_sequence_by_is_warned_of(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="streamlake"):
        stream(home, delete_mode="equality")
        stream(home, sequence_by=["v"])
        assert not caplog.records
        stream(home, delete_mode="equality", sequence_by=["v"])
    [record] = caplog.records
    assert "sequence_by orders the changes inside a checkpoint only" in record.getMessage()


def test_an_identifier_field_inside_another_column(tmp_path: Path) -> None:
    home = tmp_path / "t"
    schema = parse_ddl("region string not null, place struct<id: long not null> not null, v long")
    nested = schema.find("place.id")
    assert nested is not None
    identified = replace(schema, identifier_field_ids=(schema.fields[0].field_id, nested.field_id))
    create(str(home), identified, UNPARTITIONED, format_version=2)
    with pytest.raises(InvalidOptionError, match=r"the identifier field place\.id is inside another column"):
        stream(home, key=[])
    stream(home, key=["v"])
