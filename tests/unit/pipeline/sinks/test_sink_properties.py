"""Properties of a sink are for the table that it creates; for one that exists the sink says what they change nothing about."""

from __future__ import annotations

import logging

from streamlake import IcebergSink
from streamlake.checkpoint.table_note import Calls
from tests.helpers.tables import make_table


def test_properties_that_change_nothing_are_named(tmp_path, caplog):
    make_table(tmp_path / "t", "id long", properties={"write.format.default": "parquet", "k": "1"})
    given = {
        "write.format.default": "avro",
        "k": "1",
        "write.delete.granularity": "partition",
        "my.password": "x1",
    }
    sink = IcebergSink(str(tmp_path / "t"), create=True, properties=given)
    with caplog.at_level(logging.WARNING, logger="streamlake"):
        table = sink.stream(Calls.EVERY).table(None, None)
    [message] = [record.getMessage() for record in caplog.records]
    assert "write.format.default=avro (the table has parquet)" in message
    assert "write.delete.granularity=partition (the table has none, so the default)" in message
    assert "k=1" not in message
    assert "x1" not in message
    assert table.properties["write.format.default"] == "parquet"
    caplog.clear()
    IcebergSink(str(tmp_path / "t"), create=True, properties={"k": "1"}).stream(Calls.EVERY).table(None, None)
    assert not caplog.records
