"""Errors that nobody foresaw, at each edge of a commit: what is committed stays readable, what is not leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlake import failpoints
from streamlake.catalog.open import open_table
from streamlake.errors import CommitStateUnknownError
from streamlake.failpoints import FailpointError
from streamlake.ids import new_uuid
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.invariants import check_table
from tests.helpers.tables import data_file, make_table, metadata_files, stage


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = make_table(tmp_path)
    AppendFiles(table).append_file(data_file(table, records=1)).commit()
    return table


def append(table: Table, armed: str) -> None:
    operation = AppendFiles(table).append_file(data_file(table, records=20))
    operation.append_manifest(stage(table, data_file(table, records=300), uuid=new_uuid()))
    failpoints.arm(armed)
    try:
        operation.commit()
    finally:
        failpoints.arm("")


def rows(table: Table) -> str:
    fresh = open_table(table.location)
    check_table(fresh)
    assert fresh.current_snapshot is not None
    return fresh.current_snapshot.summary["total-records"]


@pytest.mark.parametrize("place", ["manifest-list-written", "before-swap"])
def test_an_error_before_the_swap_leaves_the_table_and_its_folder_as_they_were(
    place: str, table: Table
) -> None:
    before = metadata_files(table)
    with pytest.raises(FailpointError):
        append(table, f"{place}=raise")
    assert rows(table) == "1"
    assert len(metadata_files(table) - before) == 1, "the manifest that was handed in"


@pytest.mark.parametrize("place", ["after-swap", "before-clean-up"])
@pytest.mark.parametrize("error", ["raise", "raise:StorageError", "raise:FencedError"])
def test_an_error_after_the_swap_takes_no_file_of_the_snapshot(place: str, error: str, table: Table) -> None:
    with pytest.raises(Exception, match=place):
        append(table, f"{place}={error}")
    assert rows(table) == "321"


def test_a_conflict_with_our_own_commit_is_none(table: Table) -> None:
    append(table, "after-swap=raise:CommitConflictError,nth=1")
    assert rows(table) == "321"


def test_a_lost_answer_is_looked_up_in_the_table(table: Table) -> None:
    append(table, "after-swap=raise:CommitStateUnknownError")
    append(table, "after-create=raise")
    assert rows(table) == "641"


def test_an_error_inside_the_swap_is_not_taken_for_a_failure(table: Table) -> None:
    before = metadata_files(table)
    with pytest.raises(CommitStateUnknownError, match="nothing was deleted"):
        append(table, "metadata-written=raise")
    assert rows(table) == "1"
    left = {name for name in metadata_files(table) - before if name.startswith("snap-")}
    assert len(left) == 1, "it might still be needed"
