"""Row ids stay what they are from the moment they are assigned: through upgrades, merges, overwrites and branches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.tables import FAST_RETRIES, FaultyOperations, data_file, make_table

STEPS = 40
UPGRADE_AT = 12


@pytest.mark.parametrize("seed", range(3))
def test_row_ids_never_change_and_never_meet(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_table(tmp_path, properties={"commit.manifest.min-count-to-merge": "3"})
    assigned: dict[tuple[str, str], int] = {}
    for step in range(STEPS):
        table = open_table(str(tmp_path))
        if step == UPGRADE_AT:
            UpdateProperties(table).upgrade_format_version(3).commit()
        _change(table, chance.choice(["main", "main", "audit"]), chance)
        fresh = open_table(str(tmp_path))
        check_table(fresh)
        for branch in fresh.refs if fresh.format_version >= 3 else ():
            for file in live_data_files(fresh, fresh.metadata.head(branch)):
                if file.first_row_id is not None:
                    known = assigned.setdefault((branch, file.file_path), file.first_row_id)
                    assert file.first_row_id == known, f"step {step}: {file.file_path} on {branch}"
    assert len(assigned) > STEPS


def _change(table: Table, branch: str, chance: random.Random) -> None:
    head = table.metadata.head(branch)
    live = live_data_files(table, head) if head else []
    if chance.random() < 0.75 or not live:
        append = AppendFiles(table, branch=branch)
        for _ in range(chance.randint(1, 3)):
            append.append_file(data_file(table, records=chance.randint(1, 20)))
        append.commit()
        return
    overwrite = OverwriteFiles(table, branch=branch)
    for file in chance.sample(live, min(2, len(live))):
        overwrite.delete_file(file)
    overwrite.add_file(data_file(table, records=7)).commit()


@pytest.mark.parametrize("merges", [False, True], ids=["rewritten", "merged"])
def test_a_retry_across_an_upgrade(tmp_path: Path, merges: bool) -> None:
    """The first attempt writes manifests of version 2; before the second one the table is upgraded, and another writer's
    commit gives the rows that are there their ids."""
    location = tmp_path / "t"
    properties = {**FAST_RETRIES, "commit.manifest.min-count-to-merge": "2"} if merges else FAST_RETRIES
    make_table(location, "id long", format_version=2, properties=properties)
    table = open_table(str(location))
    first = AppendFiles(table)
    for _ in range(3):
        first.append_file(data_file(table))
    first.commit()
    before: dict[str, int | None] = {}

    def others() -> None:
        if not before:
            table = open_table(str(location))
            UpdateProperties(table).upgrade_format_version(3).commit()
            AppendFiles(table).commit()
            before.update({file.file_path: file.first_row_id for file in live_data_files(table.refresh())})

    own = open_table(str(location))
    own = Table(own.name, FaultyOperations(own.operations, before_swap=others))
    if merges:
        AppendFiles(own).append_file(data_file(own)).commit()
    else:
        OverwriteFiles(own).delete_file(live_data_files(own)[0]).commit()
    assert None not in before.values()
    after = {file.file_path: file.first_row_id for file in live_data_files(open_table(str(location)))}
    assert len(set(after) & set(before)) == (3 if merges else 2)
    assert {path: first for path, first in after.items() if path in before} == {
        path: first for path, first in before.items() if path in after
    }
    check_table(open_table(str(location)))
