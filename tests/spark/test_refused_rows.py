"""Rows that no table should have under a real query: without a key, or with a column that Spark cannot name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamlake import IcebergSink, load_table
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from tests.helpers.change_stream import ChangeStream


def test_a_change_without_its_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The key of a table that the sink makes is required, as the specification has it for identifier fields."""
    stream = ChangeStream(spark, tmp_path)
    stream.land([("+U", 1, "p0", "a")])
    stream.land([("+U", None, "p0", "b")], model=False)
    with pytest.raises(
        SchemaMismatchError,
        match=r"the value is null and the table requires one\. It is part of the table.s key",
    ):
        stream.run()
    stream.check()
    table = load_table(str(stream.location))
    assert table.schema.find("id").required
    assert table.schema.identifier_field_ids == (table.schema.find("id").field_id,)


def test_a_dot_in_a_columns_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("value as `a.b`")
    with pytest.raises(InvalidOptionError) as raised:
        IcebergSink(str(tmp_path / "t"), create=True).start(frame, checkpoint_location=str(tmp_path / "c"))
    assert str(raised.value).startswith("the column 'a.b' has a dot in its name")
    assert len(str(raised.value)) < 250
    assert not list(tmp_path.iterdir())
