"""Deletes become one per data file: which rows are live does not change, whatever was there and whoever commits."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake import failpoints
from streamlake.maintain.deletes import delete_conversion, keyed_positions
from streamlake.maintain.deletes.delete_conversion import convert_deletes
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.table import Table
from streamlake.tables import LoadedTable, load_table
from tests.helpers.change_history import ChangeHistory
from tests.helpers.delete_history import NUMBER, TYPES, VALUES, History
from tests.helpers.invariants import check_table, live_entries

KINDS = ["equality", "shared", "own", "vector"]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def kind_of(file: DataFile) -> str:
    if file.content == FileContent.EQUALITY_DELETES:
        return "equality"
    if file.is_deletion_vector:
        return "vector"
    return "shared" if file.deletes_from is None else "own"


def deletes(table: Table) -> Counter[str]:
    """Live delete files by their kind."""
    table.refresh()
    found = [entry.data_file for entry in live_entries(table)] if table.current_snapshot else []
    return Counter(kind_of(file) for file in found if not file.is_data)


def places(table: LoadedTable) -> list[tuple[Any, ...]]:
    """The live rows by file and position, with their row ids where they have some."""
    columns = ["_file", "_pos"]
    if table.format_version >= 3:
        columns += ["_row_id", "_last_updated_sequence_number"]
    return sorted(tuple(row.values()) for row in table.scan(columns=columns).to_arrow().to_pylist())


def same_places(before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]) -> bool:
    """After an upgrade the first commit gives rows their ids."""
    return [each[:2] for each in before] == [each[:2] for each in after] and all(
        None in old or old == new for old, new in zip(before, after, strict=True)
    )


def upgrade(table: Table) -> None:
    base = table.refresh().metadata
    table.operations.commit(base, replace(base, format_version=3, next_row_id=base.next_row_id or 0))
    table.refresh()


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.sampled_from([2, 3]), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
def test_rows_of_random_histories_stay(data: Any, version: int, types: list[str]) -> None:
    """Any formats, specs, key types, null keys, several sets of key columns, dropped and renamed columns."""
    few_keys = mock.patch.object(keyed_positions, "KEYS_AT_ONCE", data.draw(st.sampled_from([1, 5, 1 << 40])))
    with few_keys, tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/t", data.draw, version, types, nested_keys=False)
        for _ in range(data.draw(st.integers(1, 4))):
            for _ in range(data.draw(st.integers(1, 3))):
                if data.draw(st.integers(0, 2)) == 0:
                    history.evolve()
                history.checkpoint()
            if data.draw(st.integers(0, 3)) == 0 and version == 2:
                upgrade(history.table.table)
                history.version = version = 3
            note(repr(history.model))
            converted(
                history, data.draw(st.sampled_from([{}, {"rewrite-all": True}, {"min-input-files": 1}]))
            )


def converted(history: History, options: dict[str, object]) -> None:
    table = history.table.refresh()
    live = sorted(row[NUMBER] for row in history.model.live())
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == live
    before, head = places(table), table.current_snapshot
    done = convert_deletes(table.table, options)
    assert same_places(before, places(table.refresh()))
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == live
    check_table(table.table, files_exist=True)
    left = deletes(table.table)
    assert left["equality"] == 0
    if table.format_version >= 3:
        assert set(left) <= {"vector"}
    if head is None or done.snapshot_id is None:
        assert (done.removed, done.added) == (0, 0)
        return
    assert table.current_snapshot is not None
    assert table.current_snapshot.operation == "replace"
    assert table.scan_changes(head.snapshot_id).count() == 0
    again = convert_deletes(
        table.table, {key: value for key, value in options.items() if key != "rewrite-all"}
    )
    assert again.snapshot_id is None, "it is done"
    history.vectors = {
        entry.data_file.referenced_data_file or ""
        for entry in live_entries(table.table)
        if not entry.data_file.is_data
    } | history.vectors


def meanwhile(action: Callable[[], None], at: str = "deletes-converted") -> Any:
    """Another writer's work at a moment of the next conversion, at its first attempt only."""
    todo = [action]

    def passed(name: str) -> None:
        if name == at and todo:
            todo.pop()()

    return mock.patch.object(delete_conversion, "failpoint", passed)


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(), st.sampled_from([2, 3]), st.lists(st.sampled_from(["int", "string"]), min_size=1, max_size=2)
)
def test_commits_of_others_meanwhile_lose_nothing(data: Any, version: int, types: list[str]) -> None:
    """Appends, deletes of every kind, rewrites, compactions, deletes that are undone, another conversion."""
    with tempfile.TemporaryDirectory() as folder:
        history = ChangeHistory(f"{folder}/t", data.draw, version, types, VALUES, nested_keys=False)
        for _ in range(data.draw(st.integers(1, 4))):
            history.commit()
        count = data.draw(st.integers(1, 3))
        converts = data.draw(st.integers(0, 3)) == 0

        def others() -> None:
            for _ in range(count):
                history.commit()
            if converts:
                convert_deletes(load_table(history.table.location).table)

        table = load_table(history.table.location).table
        with meanwhile(others, data.draw(st.sampled_from(["deletes-planned", "deletes-converted"]))):
            done = convert_deletes(table, data.draw(st.sampled_from([{}, {"min-input-files": 1}])))
        note(repr(history.model))
        found = history.table.refresh().scan(columns=["n"]).to_arrow()["n"].to_pylist()
        assert sorted(found) == sorted(row[NUMBER] for row in history.model.live())
        check_table(history.table.table, files_exist=True)
        assert done.kept == 0
