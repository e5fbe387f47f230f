"""What a table as the source says about key, row kinds and order, where the user does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlake import IcebergSink, IcebergSource, create_table
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.pipeline.sinks import prepared_table as module
from streamlake.pipeline.sinks.prepared_table import CHANGE_COLUMNS, CHANGE_ORDER, prepared_table
from streamlake.pipeline.sinks.sink_settings import ChangeSettings
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.tables import LoadedTable
from tests.unit.read.written_tables import append

CHANGES = parse_ddl(
    "id long not null, v string, _row_kind string, _snapshot_id long, _sequence_number long, _ordinal int"
)


@pytest.fixture
def source(tmp_path: Path) -> LoadedTable:
    table = create_table(tmp_path / "source", "id long not null, v string, at timestamp, n int")
    UpdateSchema(table.table).set_identifier_fields(["id"]).commit()
    return table.refresh()


def prepared(source: LoadedTable, tmp_path: Path, mode: str = "append", **given: Any) -> Any:
    options = {key.replace("_", "-"): given.pop(key) for key in list(given) if key in OPTIONS}
    arguments = {key: given.pop(key) for key in ("columns", "filter") if key in given}
    sink = IcebergSink(str(tmp_path / "copy"), mode=mode, create=True, **given)
    return prepared_table(
        sink.stream(Calls.EVERY), IcebergSource(source.location, options=options, **arguments)
    )


OPTIONS = ("read_mode", "watermark_column", "starting_strategy")


def changes_of(found: Any) -> ChangeSettings:
    return found.target.stream.settings.changes


@pytest.fixture
def of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An enumerator whose rows are changes."""

    class Stub:
        def __init__(self, *_: object, **__: object) -> None: ...

        def columns(self) -> Schema:
            return Schema(CHANGES.fields, identifier_field_ids=(CHANGES.fields[0].field_id,))

    monkeypatch.setattr(module, "SnapshotEnumerator", Stub)


def test_changes_need_no_further_setting(source: LoadedTable, tmp_path: Path, of_changes: None) -> None:
    found = prepared(source, tmp_path, "upsert", read_mode="changes")
    assert (changes_of(found).key, changes_of(found).row_kind) == (("id",), "_row_kind")
    assert found.target.order_column == CHANGE_ORDER
    assert found.target.columns.metadata == CHANGE_COLUMNS
    created = found.target.stream.settings.created_schema(found.target.schema)
    assert created.column_names == ["id", "v"]
    assert created.identifier_names == ["id"]


def test_all_changes_are_kept_by_an_append(source: LoadedTable, tmp_path: Path, of_changes: None) -> None:
    found = prepared(source, tmp_path, read_mode="changes")
    assert found.target.schema.column_names == CHANGES.column_names
    assert (found.target.order_column, found.target.columns.metadata) == (None, frozenset())


def test_what_is_given_is_kept(source: LoadedTable, tmp_path: Path, of_changes: None) -> None:
    found = prepared(source, tmp_path, "upsert", read_mode="changes", key=["v"], sequence_by=["id"])
    assert (changes_of(found).key, changes_of(found).sequence_by) == (("v",), ("id",))
    assert found.target.order_column is None
    create_table(tmp_path / "copy", "id long, v string not null, _row_kind string")
    with pytest.raises(InvalidOptionError, match="has a column '_row_kind'"):
        prepared(source, tmp_path, "upsert", read_mode="changes", key=["v"])


def test_a_key_of_the_target_goes_first(source: LoadedTable, tmp_path: Path) -> None:
    assert changes_of(prepared(source, tmp_path, "upsert")).key == ("id",)
    table = create_table(tmp_path / "copy", "id long, v string not null, at timestamp, n int")
    UpdateSchema(table.table).set_identifier_fields(["v"]).commit()
    assert changes_of(prepared(source, tmp_path, "upsert")).key == ()


def test_a_first_scan_of_several_rows_per_key_needs_an_order(source: LoadedTable, tmp_path: Path) -> None:
    append(source, [{"id": 1, "v": "a"}])
    prepared(source, tmp_path, "upsert")
    prepared(source, tmp_path, "upsert", key=["id", "v"])
    with pytest.raises(InvalidOptionError, match=r"in no order.*sequence_by='none'"):
        prepared(source, tmp_path, "upsert", key=["v"])
    for given in (
        {"sequence_by": ["n"]},
        {"sequence_by": "none"},
        {"starting_strategy": "incremental-from-earliest-snapshot"},
    ):
        prepared(source, tmp_path, "upsert", key=["v"], **given)


def test_columns_that_leave_the_key_out(source: LoadedTable, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"no identifier fields .* key=\[...\]"):
        prepared(source, tmp_path, "upsert", columns=["v"])
    assert prepared(source, tmp_path, columns=["v", "id"]).target.schema.column_names == ["v", "id"]


def test_a_watermark_is_of_times_that_are_read(source: LoadedTable, tmp_path: Path) -> None:
    assert prepared(source, tmp_path, watermark_column="at").target.watermark_column == "at"
    assert prepared(source, tmp_path, watermark_column="n").target.watermark_column is None
    with pytest.raises(InvalidOptionError, match="watermark-column is 'at'"):
        prepared(source, tmp_path, watermark_column="at", columns=["id"])


def test_docs_requiredness_and_nanoseconds_of_the_source(tmp_path: Path) -> None:
    table = create_table(tmp_path / "source", "id long not null, at timestamp_ns", format_version=3)
    UpdateSchema(table.table).describe("id", "the number").commit()
    found = prepared(table.refresh(), tmp_path)
    [first, _] = found.target.schema.fields
    assert (first.required, first.doc) == (True, "the number")
    assert found.target.stream.settings.created_format_version == 3


def test_rejects_and_a_missing_source_are_refused(source: LoadedTable, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="on_error='reject'"):
        prepared(source, tmp_path, on_error="reject")
    sink = IcebergSink(str(tmp_path / "copy"), create=True)
    with pytest.raises(TableNotFoundError):
        prepared_table(sink.stream(Calls.EVERY), IcebergSource(str(tmp_path / "nowhere")))
