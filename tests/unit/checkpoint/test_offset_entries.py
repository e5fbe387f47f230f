"""Ticks in Spark's log and the Kafka offsets that they stand for, as the commands without Spark read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.checkpoint.offset_entries import entry_from_text, entry_to_bytes, tick_of
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.source.offsets import SourceOffsets

ENDS = [
    SourceOffsets({("t", 0): 5}, {("t", 0): 2}),
    SourceOffsets({("t", 0): 9}),
    SourceOffsets({("t", 0): 12}),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three checkpoints; Spark has completed two of them and ticked for a fourth."""
    for log in ("offsets", "commits", "streamlake/offsets"):
        (tmp_path / log).mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id": "job"}')
    for number in range(4):
        tick = json.dumps({"offset": number + 1, "timestamp": 1000 * (number + 1)})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{tick}")
    for number, end in enumerate(ENDS):
        (tmp_path / "streamlake" / "offsets" / str(number)).write_bytes(entry_to_bytes(end.to_text()))
    for number in range(3):
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    return tmp_path


def test_a_checkpoint_ends_where_its_entry_says(home: Path) -> None:
    directory = SparkDirectory(str(home))
    assert [source_offsets(directory.end_offsets(number) or ()) for number in range(3)] == ENDS


def test_a_tick_that_waits_is_not_planned(home: Path) -> None:
    directory = SparkDirectory(str(home))
    assert (directory.last_planned, directory.last_completed) == (2, 2)
    (home / "streamlake" / "offsets" / "3").write_bytes(entry_to_bytes(ENDS[2].to_text()))
    assert directory.last_planned == 3


@pytest.mark.parametrize("left", [None, b"", b"v1\n{}\n"])
def test_a_torn_tick_is_planned_again_as_what_our_own_log_says(home: Path, left: bytes | None) -> None:
    """So the table, which may hold the checkpoint, does not disagree with the directory."""
    (home / "offsets" / "3").unlink()
    (home / "offsets" / "2").unlink()
    if left is not None:
        (home / "offsets" / "2").write_bytes(left)
    directory = SparkDirectory(str(home))
    assert (directory.last_planned, directory.last_completed, directory.next_checkpoint) == (1, 1, 2)
    assert source_offsets(directory.end_offsets(2) or ()) == ENDS[2]
    directory.remove_torn()
    assert source_offsets(directory.end_offsets(2) or ()) == ENDS[2]
    assert directory.torn == []
    assert not (home / "commits" / "2").exists()
    assert directory.end_offsets(3) is None


def test_going_back_forgets_the_entries(home: Path) -> None:
    directory = SparkDirectory(str(home))
    directory.go_back_to(0)
    assert directory.planned == directory.completed == [0]
    assert [path.name for path in (home / "streamlake" / "offsets").iterdir()] == ["0"]
    assert source_offsets(directory.end_offsets(0) or ()) == ENDS[0]


def test_going_back_forgets_what_spark_has_forgotten_before(home: Path) -> None:
    """Our entries outlive Spark's; a stream that begins anew must not meet one at its number."""
    for log, number in (("offsets", 0), ("offsets", 1), ("commits", 0)):
        (home / log / str(number)).unlink()
    SparkDirectory(str(home)).go_back_to(-1)
    for log in ("offsets", "commits", "streamlake/offsets"):
        assert not list((home / log).iterdir())


def test_a_file_sources_offset_is_no_tick() -> None:
    assert tick_of('{"offset": 7, "timestamp": 7000}') == 6
    for text in (
        '{"logOffset": 7}',
        ENDS[0].to_text(),
        '{"offset": 7, "timestamp": 7000, "x": 1}',
        '"timestamp"',
        "",
    ):
        assert tick_of(text) is None


def test_an_entry_that_is_damaged_or_of_another_version() -> None:
    assert json.loads(entry_from_text(entry_to_bytes('{"a": 1}').decode(), "p")) == {"a": 1}
    with pytest.raises(DataInvalidError, match="p does not hold offsets in JSON"):
        entry_from_text('v1\n{"offsets": ', "p")
    with pytest.raises(FeatureUnsupportedError, match="version 'v2'"):
        entry_from_text("v2\n{}", "p")
