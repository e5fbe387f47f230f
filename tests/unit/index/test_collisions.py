"""Real keys whose hashes are made to collide, from deduplication through lookup to merge and back."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.last_per_key import last_per_key
from streamlake.index.runs import merge_input, run_writer
from streamlake.index.runs.entries import SUPERSEDES, RunFile, sort_entries
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.run import open_run, write_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.spec.types.data_types import DecimalType, LongType, NestedField, StringType, UUIDType
from streamlake.storage.local import LocalFileIO

IO = LocalFileIO()
CASES = {
    "string": ((StringType(),), [(None,), ("",), *((f"k{n}",) for n in range(300))]),
    "composite": (
        (LongType(), StringType()),
        [(n if n % 7 else None, f"{m}" if m else None) for n in range(60) for m in range(5)],
    ),
    "decimal": ((DecimalType(38, 2),), [(Decimal(n) ** 5,) for n in range(300)]),
    "uuid": ((UUIDType(),), [(bytes([n % 256, n // 256] * 8),) for n in range(300)]),
}


@pytest.mark.parametrize("mask", [0, 3, 2**64 - 1])
@pytest.mark.parametrize("case", CASES)
def test_collisions_delete_no_wrong_row(case, mask, tmp_path, monkeypatch):
    types, values = CASES[case]
    monkeypatch.setattr(run_writer, "BLOCK_ENTRIES", 64)
    monkeypatch.setattr(merge_input, "SLICE_ENTRIES", 64)
    codec = KeyCodec(tuple(NestedField(n, f"c{n}", kind, required=False) for n, kind in enumerate(types)))

    def encode(rows):
        columns = [
            pa.array(
                [row[n] for row in rows],
                arrow_type(kind).storage_type if _extended(kind) else arrow_type(kind),
            )
            for n, kind in enumerate(types)
        ]
        columns = [
            pa.ExtensionArray.from_storage(arrow_type(kind), column) if _extended(kind) else column
            for kind, column in zip(types, columns, strict=True)
        ]
        keys = codec.encode(columns)
        return replace(keys, hashes=keys.hashes & np.uint64(mask))

    chance = random.Random(1)
    model: dict[tuple, tuple[str, int]] = {}
    runs, refs = [], []
    for number in range(5):
        path = f"/data/{number}.parquet"
        rows = [chance.choice(values) for _ in range(200)]
        keys = encode(rows)
        winners, _ = last_per_key(keys, [np.arange(len(rows))])
        model.update({row: (path, position) for position, row in enumerate(rows)})
        entries = sort_entries(
            keys.take(winners),
            np.zeros(len(winners)),
            winners,
            np.full(len(winners), SUPERSEDES),
            [RunFile(path, own=True)],
        )
        refs.insert(0, write_run(IO, str(tmp_path / f"{number}.run"), entries, 0, 1))
        runs = [open_run(IO, ref) for ref in refs]
        assert answers(KeyIndex(runs, lambda path: True), encode, values) == model
    one = merge_runs(runs, lambda path: True, RunWriter(IO, str(tmp_path / "m.run"), 0, 1), is_oldest=True)
    assert one.entries == len(model)
    assert answers(KeyIndex([open_run(IO, one)], lambda path: True), encode, values) == model


def _extended(kind) -> bool:
    return isinstance(arrow_type(kind), pa.ExtensionType)


def answers(index, encode, values):
    found = index.lookup(encode(values))
    assert len(set(found.query.tolist())) == len(found)
    return {
        values[query]: (found.paths[file], int(position))
        for query, file, position in zip(found.query, found.file, found.positions, strict=True)
    }
