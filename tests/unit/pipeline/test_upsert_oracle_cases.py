"""Plans of the oracle that once failed, and some that random ones seldom reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.oracle_plans import Checkpoint, Foreign, Plan
from tests.helpers.oracle_run import OracleRun

CASES = {
    "rows of others without a guard": Plan(
        steps=(Checkpoint(((8, 2, 7, 9),), during=(Foreign("append", 44),)),),
        guards=("decimal(20,1)", "long"),
    ),
    "whole rows are deleted of which only the key is known": Plan(
        steps=(Checkpoint(((7, 3, 6, 3),)),),
        delete_mode="equality",
        properties=(("streamlake.upsert.equality-deletes", "row"),),
    ),
}


@pytest.mark.parametrize("plan", CASES.values(), ids=CASES.keys())
def test_case(plan: Plan, tmp_path: Path) -> None:
    OracleRun(plan, tmp_path / "table").run()
