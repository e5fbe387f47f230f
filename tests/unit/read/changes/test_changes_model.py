"""Random histories of every kind of commit, against the difference of two dictionaries."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import Counter
from itertools import pairwise
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake.formats.parquet import row_groups
from streamlake.read.changes import change_scan
from streamlake.read.changes.change_scan import ChangeScan
from streamlake.read.changes.pairing import TaskRows, paired_changes
from tests.helpers.change_history import ChangeHistory, Row, State
from tests.helpers.delete_history import CATEGORY, NUMBER, TYPES

META = ("_row_kind", "_snapshot_id", "_sequence_number", "_ordinal", "_row_id")
EXAMPLES = int(os.environ.get("STREAMLAKE_CHANGES_EXAMPLES", "40"))


def found_changes(rows: pa.Table) -> Counter[tuple[int, str, str]]:
    """Each change as (ordinal, kind, values)."""
    return Counter(
        (
            row["_ordinal"],
            row["_row_kind"],
            repr(tuple(value for name, value in row.items() if name not in META)),
        )
        for row in rows.to_pylist()
    )


def expected_changes(
    history: ChangeHistory, before: State | None, after: State, wanted: Any, *, keyed: bool
) -> Counter[tuple[str, str]]:
    """Each change between two states as (kind, values)."""
    found: Counter[tuple[str, str]] = Counter()
    old = {} if before is None else shown(history, before, wanted)
    new = shown(history, after, wanted)
    for number in old.keys() | new.keys():
        if old.get(number) == new.get(number):
            continue
        same_row = keyed or (
            number in old
            and number in new
            and before is not None
            and before.row_ids.get(number) is not None
            and before.row_ids[number] == after.row_ids[number]
        )
        both = same_row and number in old and number in new
        if number in old:
            found["-U" if both else "-D", old[number]] += 1
        if number in new:
            found["+U" if both else "+I", new[number]] += 1
    return found


def shown(history: ChangeHistory, state: State, wanted: Any) -> dict[int, str]:
    return history.texts({number: row for number, row in state.rows.items() if wanted(row)})


def check_order(rows: pa.Table, *, keyed: bool) -> None:
    """Old values stand right before the new ones, and snapshots in their order."""
    kinds, ordinals = rows["_row_kind"].to_pylist(), rows["_ordinal"].to_pylist()
    assert all(
        (kind == "-U") == (after == "+U") for kind, after in zip(kinds, [*kinds[1:], None], strict=False)
    )
    if keyed:
        numbers = rows["n"].to_pylist()
        assert all(numbers[at] == numbers[at + 1] for at, kind in enumerate(kinds) if kind == "-U")
    assert ordinals == sorted(ordinals)


def through_tasks(scan: ChangeScan) -> Counter[tuple[int, str, str]]:
    """The changes, read and paired by whoever gets the plan in bytes."""
    reading, columns, plan = pickle.loads(
        pickle.dumps((scan.reading(), scan.columns, list(scan.plan_changes())))
    )
    rows = reading.rows()
    found: Counter[tuple[int, str, str]] = Counter()
    for changes in plan:
        read = [TaskRows(0, task.is_added, batch) for task in changes.tasks for batch in rows.read(task)]
        found += found_changes(paired_changes(columns, [changes.snapshot], read))
    return found


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.sampled_from([2, 3]), st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
def test_changes_are_the_differences_of_states(data: Any, version: int, types: list[str]) -> None:
    by_pages = mock.patch.object(row_groups, "_ROWS_PER_PAGE", data.draw(st.sampled_from([0, 1 << 40])))
    # Files are read once for each part of the rows; so few rows are all in one part, or nearly each in its own.
    by_parts = mock.patch.object(change_scan, "_ROWS_IN_MEMORY", data.draw(st.sampled_from([3, 1 << 20])))
    with by_pages, by_parts, tempfile.TemporaryDirectory() as folder:
        history = ChangeHistory(f"{folder}/t", data.draw, version, types)
        for _ in range(data.draw(st.sampled_from([6, 5, 4, 3, 2, 1]))):
            if data.draw(st.integers(0, 3)) == 0:
                history.evolve()
            history.commit()
        states = history.states
        if not states:
            return
        note(repr(history.model))
        table = history.table
        # As a rule all of the history.
        start, end = -1, len(states) - 1
        if not data.draw(st.integers(0, 2)):
            start = data.draw(st.integers(-1, len(states) - 1))
            end = data.draw(st.integers(max(start, 0), len(states) - 1))
        begin = None if start < 0 else states[start]
        path = ([None] if begin is None else [begin]) + states[start + 1 : end + 1]
        bound = data.draw(st.integers(0, history.numbers + 1))
        keyed = data.draw(st.booleans())

        def everything(row: Row) -> bool:
            return True

        def matching(row: Row) -> bool:
            return row[NUMBER] <= bound and row[CATEGORY] == "a"

        for text, wanted in ((None, everything), (f"n <= {bound} and category = 'a'", matching)):
            keys = ["n"] if keyed else []
            between = (None if begin is None else begin.snapshot_id, states[end].snapshot_id)
            scan = table.scan_changes(*between, text, keys=keys)
            rows = scan.to_arrow()
            check_order(rows, keyed=keyed)
            expected: Counter[tuple[int, str, str]] = Counter()
            steps = [step for step in pairwise(path) if step[1].operation != "replace"]
            for ordinal, (before, after) in enumerate(steps):
                for (kind, values), count in expected_changes(
                    history, before, after, wanted, keyed=keyed
                ).items():
                    expected[ordinal, kind, values] = count
            assert found_changes(rows) == expected
            assert [each.snapshot_id for each in scan.snapshots] == [after.snapshot_id for _, after in steps]
            assert through_tasks(scan) == expected
            small = list(scan.to_batches(batch_size=data.draw(st.integers(1, 3))))
            assert found_changes(pa.Table.from_batches(small, scan.arrow_schema)) == expected
            if keyed:
                net = table.scan_changes(*between, text, keys=keys, net_changes=True).to_arrow()
                check = Counter((kind, values) for _, kind, values in found_changes(net).elements())
                assert check == expected_changes(history, begin, states[end], wanted, keyed=True)
            assert applied(history, begin, net_rows(table, between, text, keys), wanted) == Counter(
                shown(history, states[end], wanted).values()
            )


def net_rows(table: Any, between: tuple[int | None, int], text: str | None, keys: list[str]) -> pa.Table:
    return table.scan_changes(*between, text, keys=keys, net_changes=True).to_arrow()


def applied(history: ChangeHistory, begin: State | None, rows: pa.Table, wanted: Any) -> Counter[str]:
    """The rows at the beginning with the changes applied."""
    state = Counter(shown(history, begin, wanted).values() if begin else ())
    for _, kind, values in found_changes(rows).elements():
        state[values] += 1 if kind in ("+I", "+U") else -1
        assert kind in ("+I", "+U") or state[values] >= 0
    return +state
