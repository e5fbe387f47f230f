"""Row ids stay what they are from the moment they are assigned: through upgrades, merges, overwrites and branches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.table.append_files import AppendFiles
from streamlake.table.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.tables import data_file, make_table

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
