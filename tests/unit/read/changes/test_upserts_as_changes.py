"""Tables that are upserted into, in every delete mode, as streams of changes: a dictionary says what they are."""

from __future__ import annotations

import tempfile
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.read.changes import change_scan
from streamlake.records import ROW_KIND, RowKind
from streamlake.tables import create_table, load_table
from tests.helpers.local_upserts import LocalUpserts

SCHEMA = pa.schema(
    [("id", pa.int64()), ("category", pa.string()), ("amount", pa.float64()), (ROW_KIND, pa.int8())]
)
Values = tuple[str, float]
STEP = st.dictionaries(
    st.integers(0, 12),
    st.none() | st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 1.5, 2.5])),
    min_size=1,
    max_size=8,
)


def upserts(step: dict[int, Values | None]) -> pa.Table:
    rows = [
        {
            "id": key,
            "category": None if values is None else values[0],
            "amount": None if values is None else values[1],
            ROW_KIND: int(RowKind.DELETE if values is None else RowKind.UPDATE_AFTER),
        }
        for key, values in step.items()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def difference(before: dict[int, Values], after: dict[int, Values]) -> set[tuple[str, int, str, float]]:
    found = set()
    for key in before.keys() | after.keys():
        if before.get(key) == after.get(key):
            continue
        both = key in before and key in after
        if key in before:
            found.add(("-U" if both else "-D", key, *before[key]))
        if key in after:
            found.add(("+U" if both else "+I", key, *after[key]))
    return found


def of_rows(rows: list[dict[str, Any]]) -> set[tuple[str, int, str, float]]:
    found = [(row["_row_kind"], row["id"], row["category"], row["amount"]) for row in rows]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write", "equality"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=1, max_size=5), partitioned=st.booleans(), data=st.data())
def test_each_checkpoint_is_the_difference_of_two_dictionaries(
    delete_mode: str, version: int, steps: list[Any], partitioned: bool, data: Any
) -> None:
    by_parts = mock.patch.object(change_scan, "_ROWS_IN_MEMORY", data.draw(st.sampled_from([3, 1 << 20])))
    with by_parts, tempfile.TemporaryDirectory() as folder:
        create_table(
            f"{folder}/t",
            "id long not null, category string, amount double",
            partition_by=["category"] if partitioned and delete_mode != "equality" else (),
            format_version=version,
        )
        stream = LocalUpserts(f"{folder}/t", key=["id"], delete_mode=delete_mode)
        states: list[tuple[int | None, dict[int, Values]]] = [(None, {})]
        for step in steps:
            receipt = stream.checkpoint(upserts(step))
            merged = {**states[-1][1], **step}
            state = {key: values for key, values in merged.items() if values is not None}
            snapshot = None if receipt is None else receipt.snapshot_id
            if snapshot is not None:
                states.append((snapshot, state))
        table = load_table(f"{folder}/t")
        start = data.draw(st.integers(0, len(states) - 1))
        begin = states[start][0]
        rows = table.scan_changes(begin, keys=["id"]).to_arrow().to_pylist()
        by_snapshot = {
            snapshot: [row for row in rows if row["_snapshot_id"] == snapshot] for snapshot, _ in states
        }
        for (_, before), (snapshot, after) in zip(states[start:], states[start + 1 :], strict=False):
            assert of_rows(by_snapshot[snapshot]) == difference(before, after)
        net = table.scan_changes(begin, keys=["id"], net_changes=True).to_arrow().to_pylist()
        assert of_rows(net) == difference(states[start][1], states[-1][1])

        def within(state: dict[int, Values]) -> dict[int, Values]:
            return {key: values for key, values in state.items() if values[1] > 1}

        dear = table.scan_changes(begin, None, "amount > 1", keys=["id"], net_changes=True)
        assert of_rows(dear.to_arrow().to_pylist()) == difference(
            within(states[start][1]), within(states[-1][1])
        )
        rows = table.scan_changes(begin, columns=["amount"], keys=["id"], net_changes=True).to_arrow()
        kept = difference(
            {key: ("", values[1]) for key, values in states[start][1].items()},
            {key: ("", values[1]) for key, values in states[-1][1].items()},
        )
        assert sorted(zip(rows["_row_kind"].to_pylist(), rows["amount"].to_pylist(), strict=True)) == sorted(
            (kind, amount) for kind, _, _, amount in kept
        )
