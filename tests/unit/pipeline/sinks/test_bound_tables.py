"""The directory of a query of many tables is bound to their template; tables may join, and none misses what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import Calls, Noted
from streamlake.cli.main import main
from streamlake.pipeline.sinks.bound_tables import BOUND_PATH, BoundTables, bound_to, tables_finding
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_to_bytes
from streamlake.pipeline.sinks.quarantine import QUARANTINE_PATH, Quarantined, quarantine_to_bytes
from streamlake.source.offsets import SourceOffsets
from streamlake.tasks.table_names import TableNames

TEMPLATE = "/lake/{topic}"


class Query:
    """The directory of a query of the topics `a` and `b`, which has done some checkpoints."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.put("metadata", '{"id": "job"}')
        self.done = 0
        self.at: dict[tuple[str, int], int] = {}

    def put(self, name: str, text: str | bytes) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def checkpoint(self, *, first: dict[str, int] | None = None, **read: int) -> None:
        new = {(topic, 0): at for topic, at in (first or {}).items()}
        self.at = {**self.at, **new}
        self.at |= {(topic, 0): self.at[topic, 0] + count for topic, count in read.items()}
        tick = json.dumps({"offset": self.done + 1, "timestamp": 1000})
        self.put(f"offsets/{self.done}", f"v1\n{{}}\n{tick}\n")
        self.put(entry_path(self.done), entry_to_bytes(SourceOffsets(self.at, new).to_text()))
        self.put(f"commits/{self.done}", "v1\n{}\n")
        self.done += 1

    def note(self, *topics: str) -> None:
        for topic in topics:
            noted = Noted("uuid", True, 0, passed_id=0, calls=Calls.QUERY)
            self.directory.write_note(noted, f"/lake/{topic}", "main")

    def bind(self, tables: BoundTables) -> None:
        path = self.home / BOUND_PATH
        content = bound_to(path.read_text() if path.exists() else None, tables)
        if content is not None:
            self.put(BOUND_PATH, content)

    @property
    def directory(self) -> SparkDirectory:
        return SparkDirectory(str(self.home))

    def found(self, tables: BoundTables | None = None) -> str | None:
        tables = tables or BoundTables(TEMPLATE)
        names = TableNames(tables.table, None, has_route=True)
        finding = tables_finding(self.directory, tables, names, None)
        return None if finding is None else finding.found


@pytest.fixture
def query(tmp_path: Path) -> Query:
    query = Query(tmp_path)
    assert query.found() is None
    query.checkpoint(first={"a": 5, "b": 0}, a=3, b=2)
    query.note("a", "b")
    query.bind(BoundTables(TEMPLATE))
    assert query.found() is None
    return query


@pytest.mark.parametrize(
    "tables",
    [
        BoundTables("/lake2/{topic}"),
        BoundTables("/lake/{topic}_{row.kind}"),
        BoundTables(TEMPLATE, "audit"),
    ],
)
def test_a_directory_does_not_go_on_into_other_tables(query: Query, tables: BoundTables) -> None:
    found = query.found(tables) or ""
    assert "has done checkpoint 0" in found or "has done checkpoints 0 to 0" in found
    assert TEMPLATE in found
    (query.home / BOUND_PATH).unlink()  # an older version has left none
    assert (query.found(tables) is None) == (tables.branch == "audit")


def test_a_person_binds_it_to_other_tables(query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    other = BoundTables("/lake2/{topic}")
    assert query.found(other)
    for more in ((), ("--yes",)):
        with pytest.raises(SystemExit) as ended:
            main(["recover", other.table, "--checkpoint-location", str(query.home), "--adopt", *more])
        assert ended.value.code == 0
        assert (query.found(other) is None) == bool(more)
    assert "records that were read before are left out" in capsys.readouterr().out
    query.bind(other)
    query.checkpoint(a=1)
    assert query.found(other) is None
    assert "/lake2/{topic}" in (query.found() or "")


def test_a_table_joins_with_the_first_records_of_its_topic(query: Query) -> None:
    query.checkpoint(first={"c": 500})
    query.checkpoint(a=1)
    assert query.found() is None  # no record of it yet, and so no table
    query.checkpoint(c=1)
    assert "without /lake/c" in (query.found() or "")
    query.note("c")
    assert query.found() is None


def test_a_table_that_was_in_quarantine_from_its_beginning_misses_nothing(query: Query) -> None:
    query.checkpoint(first={"c": 0}, c=3)
    entry = Quarantined(1, {"c": {"0": 0}}, "error", 1)
    query.put(QUARANTINE_PATH, quarantine_to_bytes({"/lake/c": entry}))
    assert query.found() is None


def test_rows_that_name_no_table_may_be_given_one_later(query: Query) -> None:
    tables = BoundTables("/lake/{row.kind}")
    query.put(BOUND_PATH, tables.to_bytes())
    assert query.found(tables) is None
    later = BoundTables("/lake/{row.kind}", default_table="/lake/others")
    assert query.found(later) is None
    query.bind(later)
    assert query.found(tables)
    assert query.found(BoundTables("/lake/{row.kind}", default_table="/lake/rest"))


def test_rows_of_an_older_versions_directory(query: Query) -> None:
    (query.home / BOUND_PATH).unlink()
    tables = BoundTables("/lake/{topic}_{row.kind}")
    assert query.found(tables)
    query.put(TABLES_PATH, tables_to_bytes({"/lake/a_x": "/lake/a_{row.kind}"}))
    assert query.found(tables) is None
    assert query.found(BoundTables("/lake/{row.kind}"))


def test_a_damaged_file_stops_nobody_whose_tables_are_noted(query: Query) -> None:
    query.put(BOUND_PATH, "")
    assert query.found() is None
    assert query.found(BoundTables("/lake2/{topic}"))
    query.bind(BoundTables(TEMPLATE))
    assert BoundTables.of(query.directory) == BoundTables(TEMPLATE)
