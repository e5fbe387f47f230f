"""A stream of a few checkpoints without Spark, whose drivers die of errors: each death is followed by a successor.

What a driver dies of is a fault of the storage, or a failpoint that raises. The successor recovers what was staged, replays
the checkpoint that was not finished, and goes on; at the end the table must be the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamlake import failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import StreamlakeError
from streamlake.failpoints import FailpointError
from streamlake.records import ROW_KIND, RowKind
from tests.helpers.faulty_io import Fault, FaultyIO, faulty_table
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

DDL = "id long, v string"
CHECKPOINTS = 3
ROWS = 40
KEYS = 60
MODES = {
    "position/3": ("position", 3),
    "position/2": ("position", 2),
    "equality": ("equality", 2),
    "copy-on-write": ("copy-on-write", 3),
}
MOST_DEATHS = 8


@dataclass(frozen=True)
class Outcome:
    """What a stream came to: how often a driver died, and every call of the storage."""

    deaths: int
    calls: Sequence[tuple[str, str]]


def changes(checkpoint: int) -> pa.Table:
    """The changes of one checkpoint."""
    keys = [(checkpoint * 17 + at * 7) % KEYS for at in range(ROWS)]
    kinds = [RowKind.DELETE if (key + checkpoint) % 5 == 0 else RowKind.UPDATE_AFTER for key in keys]
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "v": [f"{checkpoint}-{at}" for at in range(ROWS)],
            ROW_KIND: pa.array(kinds, pa.int8()),
        }
    )


def model() -> dict[int, str]:
    """What the table holds after all checkpoints."""
    rows: dict[int, str] = {}
    for checkpoint in range(CHECKPOINTS):
        for change in changes(checkpoint).to_pylist():
            if change[ROW_KIND] == RowKind.DELETE:
                rows.pop(change["id"], None)
            else:
                rows[change["id"]] = change["v"]
    return rows


def stream(location: Path, mode: str, faults: Sequence[Fault] = (), armed: Sequence[str] = ()) -> Outcome:
    """All checkpoints into a new table. `faults` are of the storage; the n-th driver has the n-th of `armed`, as the
    environment variable of failpoints has it."""
    delete_mode, version = MODES[mode]
    make_table(location, DDL, format_version=version)
    io = FaultyIO(faults)
    deaths = 0
    upserts: LocalUpserts | None = None
    failpoints.arm(armed[0] if armed else "")
    try:
        for checkpoint in range(CHECKPOINTS):
            while True:
                try:
                    if upserts is None:
                        upserts = LocalUpserts(
                            str(location),
                            key=["id"],
                            delete_mode=delete_mode,
                            opened=lambda path: faulty_table(path, io),
                        )
                        upserts.recover()
                    upserts.checkpoint_id = checkpoint
                    upserts.replay(changes(checkpoint))
                    break
                except (StreamlakeError, FailpointError):
                    deaths += 1
                    assert deaths < MOST_DEATHS, "one cause costs one driver"
                    failpoints.arm(armed[deaths] if deaths < len(armed) else "")
                    upserts = None
    finally:
        failpoints.arm("")
    return Outcome(deaths, io.calls)


def check(location: Path) -> None:
    """Each checkpoint is there, once and in order, and the rows are the model's."""
    table = open_table(str(location))
    check_table(table, files_exist=True)
    ids = [snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots]
    assert ids == [str(number) for number in range(CHECKPOINTS)]
    found = load_table(str(location)).scan().to_arrow()
    assert found.num_rows == len(model())
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == model()
