"""Checkpoints after compactions, with a key index of N keys: `python compacted_index_run.py HOME KEYS CHANGES ROUNDS`.

The writer tasks run in this process one after the other, so a checkpoint is not made longer by Spark. Each round makes the
table of small files again and compacts it, with the position map left (by size, by order) and without; the next checkpoint is
timed beside the usual ones before it. Prints one JSON object of seconds, and of rows and files that were read for the index.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.commit.marker import POSITION_MAP
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.records import ROW_KIND, RowKind
from tests.helpers.local_upserts import LocalUpserts

_USUAL = 7
_TASKS = 4
_FILES = 40


def main() -> None:
    home, keys, changed, rounds = Path(sys.argv[1]), *map(int, sys.argv[2:])
    random = np.random.default_rng(7)
    create_table(str(home), "id long, v long, at timestamp", format_version=3)
    stream = LocalUpserts(str(home), key=["id"], tasks=_TASKS)
    for part in np.array_split(np.arange(keys), _FILES // _TASKS):
        stream.checkpoint(upserts(part))
    found: dict[str, Any] = {"usual": [], "binpack": [], "sort": [], "without_map": []}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("binpack", {}),
        ("sort", {"strategy": "sort", "sort_by": ("v",)}),
        ("without_map", {}),
    ]
    for _ in range(rounds):
        for kind, settings in kinds:
            for _ in range(_USUAL):
                found["usual"].append(timed(stream, random.integers(0, keys, changed))[0])
            started = time.monotonic()
            rewrite_data_files(
                open_table(str(home)),
                CompactSettings(options={"rewrite-all": "true"}, **settings),
            )
            found.setdefault(f"{kind}_compaction", []).append(time.monotonic() - started)
            ref = left_map(home)
            found[f"{kind}_map_bytes"] = ref.bytes
            if kind == "without_map":
                Path(ref.path.removeprefix("file:")).unlink()
            seconds, rows = timed(stream, random.integers(0, keys, changed))
            found[kind].append(seconds)
            found[f"{kind}_rows_indexed"] = rows
    print(json.dumps(found))


def timed(stream: LocalUpserts, ids: Any) -> tuple[float, int]:
    """One checkpoint: seconds, and rows that were read for the index."""
    changes = upserts(ids)
    started = time.monotonic()
    receipt = stream.checkpoint(changes)
    assert receipt is not None
    return time.monotonic() - started, receipt.counters["rows-indexed"]


def upserts(ids: Any) -> pa.Table:
    ids = np.unique(ids)
    return pa.table(
        {
            "id": pa.array(ids),
            "v": pa.array(ids * 2_654_435_761 % 1_000_003),
            "at": pa.array(ids, pa.timestamp("us", "UTC")),
            ROW_KIND: pa.array(np.full(len(ids), int(RowKind.UPDATE_AFTER), np.int8)),
        }
    )


def left_map(home: Path) -> PositionMapRef:
    snapshot = open_table(str(home)).current_snapshot
    assert snapshot is not None
    return PositionMapRef.from_text(snapshot.summary[POSITION_MAP])


if __name__ == "__main__":
    main()
