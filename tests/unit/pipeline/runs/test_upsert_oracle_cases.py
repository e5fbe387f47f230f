"""Plans of the oracle that once failed, and some that random ones seldom reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.write.upsert.upsert_target import DELETE_MODES
from tests.helpers.oracle_plans import PLACES, Checkpoint, Damage, Foreign, Plan, Restart
from tests.helpers.oracle_run import OracleRun

CASES = {
    "rows of others without a guard": Plan(
        steps=(Checkpoint(((8, 2, 7, 9),), during=(Foreign("append", 44),)),),
        sequence_values=("decimal(20,1)", "long"),
    ),
    "whole rows are deleted of which only the key is known": Plan(
        steps=(Checkpoint(((7, 3, 6, 3),)),),
        delete_mode="equality",
        properties=(("streamlake.upsert.equality-deletes", "row"),),
    ),
    **{
        f"a removal behind the newer row, {mode}": Plan(
            steps=(
                Checkpoint(((1, 0, 1, 0), (2, 0, 1, 0))),
                Checkpoint(((1, 2, 5, 0), (2, 2, 3, 0), (1, 1, 3, 0), (2, 2, 4, 0), (2, 1, 2, 0))),
                Restart(1),
                Checkpoint(((1, 1, 5, 0),)),
            ),
            mode="changelog",
            delete_mode=mode,
            sequence_values=("long",),
            chunk_rows=1,
        )
        for mode in DELETE_MODES
    },
    **{
        f"a late removal before a newer row, {rows} at once": Plan(
            steps=(
                Checkpoint(((1, 0, 5, 0), (2, 0, 5, 0))),
                Checkpoint(((1, 1, 2, 0), (1, 2, 6, 0), (2, 2, 6, 0), (2, 1, 2, 0), (2, 2, 3, 0))),
                Checkpoint(((1, 1, 6, 0), (1, 2, 6, 0))),
            ),
            mode="changelog",
            sequence_values=("string",),
            chunk_rows=rows,
        )
        for rows in (1, 2, 3, 9)
    },
    "tombstones of a checkpoint during which the index is damaged": Plan(
        steps=(
            Checkpoint(((7, 1, 2, 2), (9, 1, 6, 9)), crash=True),
            Checkpoint(((4, 2, 4, 6),), crash=True),
            Checkpoint(((1, 3, 7, 4), (4, 0, 0, 2)), bulk=97, during=(Damage("run"),), crash=True),
            Checkpoint(((4, 2, 5, 0), (1, 1, 6, 8)), bulk=509, crash=True),
        ),
        sequence_values=("double",),
        chunk_rows=50,
    ),
    "the index is lost during a checkpoint, other buckets before it": Plan(
        steps=(
            Checkpoint(tuple((key, 0, 0, 0) for key in range(8))),
            Restart(1),
            Checkpoint(
                tuple((key, 0, 0, 0) for key in range(8)), during=(Foreign("append", 0), Damage("all"))
            ),
        ),
        key=("long",),
        tasks=2,
    ),
    **{
        f"the index is damaged during a checkpoint, {mode}": Plan(
            steps=(
                Foreign("append", 2),
                Checkpoint(bulk=3),
                Checkpoint(bulk=4, during=(Foreign("append", 3), Damage("all"))),
                Checkpoint(bulk=5, during=(Damage("run"), Foreign("compact", 2), Damage("flip")), crash=True),
                Checkpoint(bulk=6, during=(Damage("older"), Foreign("delete", 2)), crash=True),
                Checkpoint(bulk=7),
            ),
            key=("string", "long"),
            delete_mode=mode,
            spread=3,
        )
        for mode in ("position", "copy-on-write")
    },
    "a checkpoint larger than memory": Plan(
        steps=(Checkpoint(bulk=3), Checkpoint(bulk=4, crash=True), Checkpoint(bulk=8)),
        extras=("pad string",),
        chunk_rows=100,
        properties=(("streamlake.write.memory-budget-bytes", "1048576"),),
    ),
    "partitions of NaN and of zeros": Plan(
        key=("double",),
        steps=(
            Checkpoint(tuple((key, 2, 0, 0) for key in range(11))),
            Checkpoint(tuple((key, 2, 0, 0) for key in range(11))),
        ),
        delete_mode="equality",
        partition_by=("k0",),
        chunk_rows=3,
    ),
    **{
        f"late changes after others have compacted, {guards[0]}, {mode}": Plan(
            steps=(
                Checkpoint(((1, 2, 5, 0), (2, 2, 5, 0), (3, 2, 6, 0))),
                Foreign("compact", 35),
                Checkpoint(((1, 2, 3, 0), (2, 3, 4, 0), (3, 2, 6, 0), (4, 2, 1, 0))),
                *(Checkpoint(((5, 2, 1, 0),)) for _ in range(4)),
                Foreign("compact", 35),
                Checkpoint(((1, 2, 4, 0), (2, 2, 5, 0), (3, 3, 7, 0))),
                Restart(3),
                Checkpoint(((1, 2, 2, 0), (2, 2, 4, 0), (3, 2, 5, 0)), truncates=((5, 0),)),
            ),
            sequence_values=guards,
            delete_mode=mode,
        )
        for guards, mode in ((PLACES, "position"), (("long",), "position"), (("string",), "copy-on-write"))
    },
    **{
        f"late changes of rows that others have deleted, {guards[0]}, {mode}": Plan(
            steps=(
                Checkpoint(tuple((key, 2, 5, 0) for key in range(7))),
                Foreign("delete", 4),
                Foreign("compact", 35),
                Checkpoint(tuple((key, 2, 4, 0) for key in range(7))),
                *(Checkpoint(((8, 2, 1, 0),)) for _ in range(8)),
                Foreign("compact", 35),
                Checkpoint(tuple((key, 2, 4, 0) for key in range(7))),
            ),
            sequence_values=guards,
            delete_mode=mode,
            format_version=2,
            tasks=1,
        )
        for guards, mode in ((PLACES, "position"), (("long",), "copy-on-write"))
    },
    "nothing but a deleted key that was never there": Plan(
        steps=(Checkpoint(((1, 3, 5, 0),)), Restart(2), Checkpoint(((1, 2, 3, 0), (2, 2, 3, 0)))),
        sequence_values=("long",),
    ),
}


@pytest.mark.parametrize("plan", CASES.values(), ids=CASES.keys())
def test_case(plan: Plan, tmp_path: Path) -> None:
    OracleRun(plan, tmp_path / "table").run()
