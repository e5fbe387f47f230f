"""IcebergSource: options are parsed once, and what contradicts itself is an error before a table is opened."""

from __future__ import annotations

import pickle

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.source.iceberg.iceberg_options import PROPERTIES, IcebergOptions, ReadLimits, Strategy
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.expressions.expression_parser import parse_filter
from streamlake.spec.types.ddl import parse_ddl


def settings(**options):
    return IcebergSource(
        "/lake/t", options={key.replace("_", "-"): value for key, value in options.items()}
    ).settings


def test_defaults():
    assert settings() == IcebergOptions()
    assert settings().monitor_interval_seconds == 60


def test_every_option_is_declared_once_and_read():
    names = [each.name for each in PROPERTIES]
    assert len(set(names)) == len(names)
    assert all(each.meaning.endswith(".") for each in PROPERTIES)


def test_values():
    parsed = settings(
        monitor_interval="1.5 min",
        max_files_per_trigger=10,
        max_rows_per_trigger="1000",
        max_bytes_per_trigger="2g",
        max_planning_snapshot_count=3,
        split_size="64m",
        split_file_open_cost=0,
        case_sensitive=False,
        on_delete="skip",
    )
    assert parsed.monitor_interval_seconds == 90
    assert parsed.limits == ReadLimits(3, 10, 1000, 2 << 30)
    assert (parsed.split_size, parsed.split_file_open_cost) == (64 << 20, 0)
    assert (parsed.case_sensitive, parsed.skips_deletes) == (False, True)
    assert settings(start_snapshot_timestamp="2026-01-01T00:00:00Z").start_timestamp_ms == 1_767_225_600_000
    assert settings(start_snapshot_timestamp="2026-01-01").start_timestamp_ms == 1_767_225_600_000


@pytest.mark.parametrize("text", [each.value for each in Strategy if "snapshot-" not in each.value])
def test_strategies_in_any_spelling(text):
    assert settings(starting_strategy=text.upper().replace("-", "_")).strategy.value == text


def test_a_start_stands_for_its_strategy():
    assert settings(start_snapshot_id=5).strategy is Strategy.SNAPSHOT_ID
    assert settings(start_tag="eod").strategy is Strategy.SNAPSHOT_ID
    assert settings(start_snapshot_timestamp=5).strategy is Strategy.SNAPSHOT_TIMESTAMP


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"strating_strategy": "x"}, "did you mean 'starting-strategy'"),
        (
            {"starting_strategy": "incremental-from-latest-snapshot-exclusiv"},
            "did you mean 'incremental-from-l",
        ),
        ({"starting_strategy": "now"}, "it can be table-scan-then-incremental"),
        ({"starting_strategy": "incremental-from-snapshot-id"}, "needs start-snapshot-id or start-tag"),
        (
            {"starting_strategy": "incremental-from-snapshot-id", "start_snapshot_timestamp": 1},
            "and start-snapshot-timestamp is given",
        ),
        ({"starting_strategy": "incremental-from-snapshot-timestamp"}, "needs start-snapshot-timestamp"),
        ({"starting_strategy": "table-scan-then-incremental", "start_tag": "a"}, "leave one of them out"),
        ({"start_tag": "a", "start_snapshot_id": 1}, "exclude each other"),
        ({"end_tag": "a", "end_snapshot_id": 1}, "exclude each other"),
        ({"tag": "a", "snapshot_id": 1}, "exclude each other"),
        ({"tag": "a", "branch": "b"}, "exclude each other"),
        ({"start_snapshot_id": "x"}, "a whole number"),
        ({"start_snapshot_timestamp": "noon"}, "ISO time"),
        ({"monitor_interval": "60"}, "a number and a unit"),
        ({"monitor_interval": "60 x"}, "a number and a unit"),
        ({"max_files_per_trigger": 0}, "at least 1"),
        ({"max_bytes_per_trigger": "many"}, "bytes of at least 1"),
        ({"split_size": 0}, "bytes of at least 1"),
        ({"read_mode": "all"}, "append or changes"),
        ({"on_delete": "ignore"}, "fail or skip"),
        ({"case_sensitive": "maybe"}, "true or false"),
        ({"branch": ""}, "branch is empty"),
    ],
)
def test_contradictions(options, error):
    with pytest.raises(InvalidOptionError, match=error):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"streaming": False}, "streaming=false"),
        ({"snapshot-id": 1}, "snapshot-id belongs to a batch"),
        ({"tag": "a"}, "tag belongs to a batch"),
        ({"as-of-timestamp": 1}, "as-of-timestamp belongs to a batch"),
        ({"read-mode": "changes", "on-delete": "skip"}, "on-delete belongs to read-mode=append"),
    ],
)
def test_what_a_stream_does_not_have(options, error):
    with pytest.raises(InvalidOptionError, match=error):
        IcebergSource("/lake/t", options=options).as_stream()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"streaming": True}, "streaming=true"),
        ({"starting-strategy": "table-scan-then-incremental"}, "starting-strategy belongs to a stream"),
        ({"max-files-per-trigger": 1}, "max-files-per-trigger belongs to a stream"),
        ({"snapshot-id": 1, "end-tag": "a"}, "give one of them"),
    ],
)
def test_what_a_batch_does_not_have(options, error):
    with pytest.raises(InvalidOptionError, match=error):
        IcebergSource("/lake/t", options=options).as_batch()


def test_a_batch():
    for options in (
        {"tag": "a"},
        {"branch": "b"},
        {"start-tag": "a", "end-tag": "b"},
        {"streaming": "false"},
    ):
        source = IcebergSource("/lake/t", options=options)
        assert source.as_batch() is source
    assert IcebergSource("/lake/t", options={"streaming": "true", "branch": "b"}).as_stream()


def test_only_a_stream_that_knows_what_is_committed_holds_snapshots():
    source = IcebergSource("/lake/t", options={"hold-snapshots": True})
    with pytest.raises(FeatureUnsupportedError, match="hold-snapshots"):
        source.as_stream()
    assert source.as_stream(can_hold=True) is source


def test_arguments():
    with pytest.raises(InvalidOptionError, match="the table is missing"):
        IcebergSource("")
    with pytest.raises(InvalidOptionError, match="columns is empty"):
        IcebergSource("/lake/t", columns=[])
    with pytest.raises(InvalidOptionError, match="filter"):
        IcebergSource("/lake/t", filter="amount >")
    assert IcebergSource("/lake/t", columns="id, amount").columns == ("id", "amount")


def test_it_pickles_and_shows_no_secret():
    source = IcebergSource("db.t", {"type": "rest", "token": "x1y2"}, "id > 1", ["id"], {"branch": "b"})
    assert pickle.loads(pickle.dumps(source)) == source
    assert "x1y2" not in repr(source)


def test_names_in_another_case():
    schema = parse_ddl("Id long, s struct<Part: int>")
    source = IcebergSource(
        "/t", filter="ID > 1 and s.part = 2", columns=["id"], options={"case-sensitive": False}
    )
    assert source.columns_for(schema) == ("Id",)
    assert str(source.filter_for(schema)) == str(parse_filter("Id > 1 and s.Part = 2"))
    assert source.filter_digest != IcebergSource("/t", filter=source.filter).filter_digest
    assert IcebergSource("/t").filter_digest == ""
