"""A sink is what its user has made it: what a query finds out about a source is the query's, and the arguments can be read."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from streamlake import IcebergSink, IcebergTables, KafkaSource, create_table
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.pipeline.sinks.prepared_source import prepared_source
from streamlake.records import ROW_KIND, ROW_SEQUENCE

SOURCE = KafkaSource("127.0.0.1:1", "t", format="debezium-json", schema="id long not null, v string")


@pytest.fixture
def location(tmp_path: Path) -> str:
    create_table(str(tmp_path / "t"), SOURCE.table_schema, format_version=3)
    return str(tmp_path / "t")


def test_what_a_source_shows_is_not_the_sinks(location: str) -> None:
    sink = IcebergSink(location, mode="upsert", key=["id"], may_join=True)
    before = sink.settings
    stream = sink.stream(Calls.EVERY)
    settings, source = prepared_source(stream.settings, SOURCE)
    assert (settings.changes.row_kind, settings.changes.sequence_by) == (ROW_KIND, (ROW_SEQUENCE,))
    assert source.schema is not None
    assert (stream.settings.calls, sink.settings.calls) == (Calls.EVERY, Calls.QUERY)
    assert sink.settings is before
    assert (sink.row_kind, sink.sequence_by) == (None, ())
    assert stream.resolved(settings).runs is stream.runs


def test_the_arguments_are_there_to_be_read_and_not_to_be_changed() -> None:
    sink = IcebergSink(
        "/t", create=True, partition_by="day(at)", properties={"k": "1"}, max_rejects=3, on_error="reject"
    )
    assert (sink.table, sink.create, sink.mode, sink.partition_by) == ("/t", True, "append", ("day(at)",))
    assert (sink.properties, sink.on_error, sink.max_rejects, sink.branch) == (
        {"k": "1"},
        "reject",
        3,
        "main",
    )
    assert (sink.error, list(sink.receipts)) == (None, [])
    with pytest.raises(FrozenInstanceError):
        sink.settings.table = "/u"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="no attribute 'modus'"):
        sink.modus  # noqa: B018


@pytest.mark.parametrize("scheme", ["viewfs"])
def test_a_table_on_a_storage_that_cannot_decide_between_commits_needs_a_catalog(scheme: str) -> None:
    told = (
        f"{scheme}://b/t: a table on {scheme}:// needs a catalog service, because {scheme}:// cannot decide between two "
        "commits: give catalog='...'"
    )
    with pytest.raises(InvalidOptionError, match=told):
        IcebergSink(f"{scheme}://b/t", create=True)
    with pytest.raises(InvalidOptionError, match=r"b/\{topic\}: a table on"):
        IcebergTables(f"{scheme}://b/{{topic}}")
    with pytest.raises(FeatureUnsupportedError, match=told):
        create_table(f"{scheme}://b/t", "id long")
    IcebergSink("db.t", {"type": "rest", "uri": "http://127.0.0.1:1"})
