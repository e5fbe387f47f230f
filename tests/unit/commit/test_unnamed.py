"""Streams without a name: one that would write again what another has written is refused, any other is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.catalog.open import create
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.marker import Fence, Marker, marker_property, marker_summary
from streamlake.commit.unnamed import files_summary, has_unnamed, require_unread
from streamlake.errors import LineageError
from streamlake.source.offsets import SourceOffsets
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table

FILES = '{"files": "%s", "logOffset": 0}'


def kafka(first: int, end: int, topic: str = "orders") -> str:
    part = (topic, 0)
    return SourceOffsets({part: end}, {part: first}).to_text()


def plain(end: int) -> str:
    return json.dumps({"orders": {"0": end}})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(str(tmp_path / "t"), parse_ddl("id long"))


def commit(table: Table, text: str, name: str | None = None, files: tuple[str, ...] = ()) -> None:
    identity = CheckpointIdentity(name or f"{table.location}:old", "old", 0, (), (text,))
    operation = AppendFiles(table)
    operation.set_summary({**marker_summary(identity), **files_summary(files)})
    operation.set_properties(
        marker_property(identity.pipeline, "main", Marker.of(identity), Fence(1, "h"), (), 1)
    )
    operation.commit()


def start(table: Table, text: str, files: tuple[str, ...] = (), job_id: str = "new") -> None:
    identity = CheckpointIdentity(f"{table.location}:{job_id}", job_id, 0, (), (text,))
    require_unread(table.refresh().metadata, "main", identity, files)


@pytest.mark.parametrize(
    ("theirs", "ours", "files"),
    [
        (kafka(0, 100), kafka(0, 120), ()),
        (kafka(0, 100), kafka(99, 99), ()),
        (plain(100), plain(100), ()),
        (plain(100), plain(7), ()),
        (FILES % "abc", FILES % "abc", ()),
        (FILES % "abc", FILES % "def", ("FileStreamSource[file:/in]",)),
    ],
)
def test_what_was_read_already_is_refused(
    table: Table, theirs: str, ours: str, files: tuple[str, ...]
) -> None:
    commit(table, theirs, files=files)
    assert has_unnamed(table.refresh().metadata, "main")
    with pytest.raises(LineageError, match=r"pipeline='\.\.\.'"):
        start(table, ours, files)
    start(table, ours, files, job_id="old")


@pytest.mark.parametrize(
    ("theirs", "ours", "files"),
    [
        (kafka(0, 100), kafka(100, 120), ()),
        (kafka(0, 100), kafka(0, 100, "bills"), ()),
        (kafka(0, 100), FILES % "abc", ()),
        (FILES % "abc", FILES % "def", ("FileStreamSource[file:/other]",)),
        ("5", "5", ()),
        ('{"0": {"value": 7}}', '{"0": {"value": 7}}', ()),
        ("not json", "not json", ()),
    ],
)
def test_what_cannot_be_compared_or_differs_is_not(
    table: Table, theirs: str, ours: str, files: tuple[str, ...]
) -> None:
    commit(table, theirs, files=("FileStreamSource[file:/in]",))
    start(table, ours, files)


def test_a_stream_with_a_name_is_not_meant(table: Table) -> None:
    commit(table, kafka(0, 100), name="orders")
    assert not has_unnamed(table.refresh().metadata, "main")
    start(table, kafka(0, 100))
