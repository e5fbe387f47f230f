"""IcebergTables: what it refuses before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from streamlake import IcebergTables, KafkaSource
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.tasks.table_names import TableNames


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        ("lake.orders", {}, "'lake.orders' has no placeholder"),
        ("lake.{topic}", {"on_table_failure": "quarantin"}, "quarantin.*[Dd]id you mean 'quarantine'"),
        ("lake.{topic}", {"mode": "upsrt"}, "'upsrt'"),
        ("lake.{topic}", {"tables": {"lake.a": {"mode": "upsrt"}}}, "'upsrt'"),
        ("lake.{topic}", {"route": len}, r"write '\{route\}' in its name"),
        ("lake.{route}", {"route": "no.such:thing"}, "cannot be imported"),
        ("lake.{topic}", {"default_table": "lake.rest"}, "topics alone name those of"),
        ("lake.{row.a}", {"default_table": "lake.{row.b}"}, "do not tell what is to be written"),
        ("lake.{row.a}", {"max_tables": 0}, "at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    table: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        IcebergTables(table, **arguments)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"lake.b": {}}, "'lake.b', which is the table of no topic"),
        ({"lake.orderz": {}}, "did you mean 'lake.orders'"),
    ],
)
def test_settings_of_a_table_that_no_topic_has_are_refused(tables: dict[str, Any], message: str) -> None:
    sink = IcebergTables("lake.{topic}", tables=tables)
    source = KafkaSource("127.0.0.1:1", topics=["orders"], schema="id long")
    with pytest.raises(StreamlakeError, match=message):
        sink.start(source, checkpoint_location="/nowhere")


def test_settings_that_no_topic_of_the_pattern_can_have_are_refused_and_others_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def required(own: str) -> None:
        settings = IcebergTables("lake.s_{topic}", tables={own: {}})._settings
        names = TableNames("lake.s_{topic}", "o.*")
        settings.require_own_used(["lake.s_orders"], names)

    required("lake.s_orders")
    assert not caplog.records
    with pytest.raises(
        InvalidOptionError, match=r"'lake\.orders', which is the table of no topic; did you mean"
    ):
        required("lake.orders")
    with pytest.raises(InvalidOptionError, match="of no topic"):
        required("lake.s_")
    required("lake.s_orderz")
    assert "did you mean 'lake.s_orders'? (a topic that is created later may give it)" in caplog.text


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("lake.{row.nane}", r"rows have no such field; did you mean '\{row\.name\}'"),
        ("lake.{row.amount}", "which is double: tables are named by text"),
        ("lake.{route}", "no function is given"),
    ],
)
def test_what_rows_do_not_tell_is_noticed_before_anything_runs(table: str, message: str) -> None:
    source = KafkaSource("127.0.0.1:1", topics=["orders"], schema="id long, name string, amount double")
    with pytest.raises(InvalidOptionError, match=message):
        IcebergTables(table).start(source, checkpoint_location="/nowhere")


def test_a_data_frame_goes_into_one_table() -> None:
    with pytest.raises(InvalidOptionError, match="use IcebergSink"):
        IcebergTables("lake.{topic}").start(object(), checkpoint_location="/nowhere")  # type: ignore[arg-type]
