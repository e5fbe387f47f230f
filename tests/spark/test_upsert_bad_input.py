"""Upserts with bad input under a real query: the error says what to do, and the corrected job loses nothing.

What needs no Spark is in tests/unit/pipeline/runs/test_upsert_refusals.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.errors import InvalidOptionError, SchemaMismatchError, StreamlakeError
from tests.helpers.change_stream import ChangeStream, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST: list[Row] = [("+I", number, 1, f"first-{number}") for number in range(200)]
SECOND: list[Row] = [("+U", number, 2, f"second-{number}") for number in range(100, 300)]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> ChangeStream:
    """One checkpoint is in the table."""
    stream = ChangeStream(spark, tmp_path, columns="id bigint, at bigint, v string")
    stream.land(FIRST)
    stream.run(stream.sink(**OPTIONS))
    return stream


OPTIONS: dict[str, Any] = {"sequence_by": ["at"], "pipeline": "changes"}


def refused(stream: ChangeStream, kind: type[StreamlakeError], frame: Any = None, **options: Any) -> str:
    """The message with which the query ends; the table stays what it was."""
    before = stream.table.current_snapshot.snapshot_id
    with pytest.raises(kind) as raised:
        stream.run(stream.sink(**{**OPTIONS, **options}), frame)
    assert type(raised.value) is kind
    assert stream.table.current_snapshot.snapshot_id == before
    return str(raised.value)


def test_columns_that_are_missing_and_keys_that_change(stream: ChangeStream) -> None:
    stream.land(SECOND)
    told = refused(stream, SchemaMismatchError, stream.frame(kinds=False))
    assert "the required column 'op' is not in the stream" in told
    for name in ("id", "at"):
        told = refused(stream, SchemaMismatchError, stream.frame().drop(name))
        assert f"the required column '{name}' is not in the stream" in told
    told = refused(stream, InvalidOptionError, key=["v"])
    assert "by the key id so far, and is now started with the key v" in told
    stream.run(stream.sink(**OPTIONS))
    stream.check()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("T", 7, 3, "x"), "column 'op', row \\d+: 'T' is not a row kind. Known are 0 or \\+I"),
        ((None, 7, 3, "x"), "column 'op', row \\d+: null is not a row kind"),
        (("+U", 7, None, "x"), "column 'at', row \\d+: the value is null and `sequence_by` needs one"),
    ],
)
def test_a_change_that_cannot_be_understood(wrong: Row, message: str, stream: ChangeStream) -> None:
    """It is taken out of the file that the refused checkpoint consists of, and the same checkpoint goes through."""
    good: list[Row] = [("+U", 7, 2, "two"), ("-D", 8, 2, None)]
    stream.land([*good, wrong], model=False)
    told = refused(stream, SchemaMismatchError)
    assert re.search(message, told)
    stream.files -= 1
    stream.land(good)
    stream.run(stream.sink(**OPTIONS))
    stream.check()


def test_no_table_is_made_for_a_key_that_cannot_be_one(spark: SparkSession, tmp_path: Path) -> None:
    stream = ChangeStream(spark, tmp_path, columns="id bigint, parts array<bigint>")
    stream.land([("+I", 1, [2])])
    for options, kind, message in (
        ({"key": ["parts"]}, InvalidOptionError, "parts"),
        (
            {"key": ["idd"]},
            SchemaMismatchError,
            "the key column 'idd' is not a column of the stream. Did you mean 'id'",
        ),
        ({"key": []}, InvalidOptionError, "a table that is created for upserts needs a key"),
    ):
        with pytest.raises(kind) as raised:
            stream.run(stream.sink(**options))
        assert message in str(raised.value)
        assert not Path(stream.location).exists()
    stream.run()
    assert load_table(str(stream.location)).scan().to_arrow()["id"].to_pylist() == [1]
