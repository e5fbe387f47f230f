"""Offsets into a table: one text for equal offsets, an order, and errors for what is not an offset of a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.errors import SourceError
from streamlake.source.iceberg.table_offset import FilePosition, SnapshotPosition, SplitPlanning, TableOffset

ids = st.integers(0, 2**63 - 1)
positions = st.builds(
    SnapshotPosition,
    st.none() | ids,
    st.none() | st.builds(FilePosition, st.integers(0, 10), st.integers(0, 10)),
    st.booleans(),
    st.none() | st.integers(0, 9),
)
plannings = st.builds(
    SplitPlanning,
    st.sampled_from(["", "abc"]),
    st.integers(0, 9),
    st.integers(1, 1 << 40),
    st.integers(1, 99),
    st.integers(0, 1 << 30),
    st.none() | st.integers(1, 9),
    st.sampled_from(["append", "changes"]),
)
offsets = st.builds(
    TableOffset,
    st.just("uuid"),
    positions,
    st.integers(0, 9),
    plannings,
    st.none() | positions,
    st.integers(0, 3),
)
PLANNING = SplitPlanning("", 0, 1, 1, 0)


@given(offsets)
def test_json_and_back(offset):
    text = offset.to_text()
    found = TableOffset.from_json(json.loads(text))
    assert found == offset
    assert found.to_text() == text


@given(offsets, offsets)
def test_one_text_for_equal_offsets_only(one, other):
    assert (one == other) == (one.to_text() == other.to_text())


def test_the_text_that_is_stored():
    """Checkpoints hold it: what is stored can be read by every later version."""
    offset = TableOffset(
        "u",
        SnapshotPosition(5, FilePosition(3, 1), True, 2),
        1,
        PLANNING,
        SnapshotPosition(5, FilePosition(), True, 2),
    )
    assert offset.to_text() == (
        '{"version": 1, "table-uuid": "u", "snapshot-id": 5, "sequence-number": 2, "position": [3, 1], '
        '"scan": true, "step": 1, "planning": {"schema-id": 0, "split-size": 1, "split-lookback": 1, '
        '"split-file-open-cost": 0}, "start": {"snapshot-id": 5, "sequence-number": 2, "position": [0, 0], '
        '"scan": true}}'
    )


def test_order():
    def at(step, within):
        return TableOffset("u", SnapshotPosition(step, within), step, PLANNING)

    ordered = [
        at(0, FilePosition(0, 1)),
        at(0, FilePosition(1, 0)),
        at(0, None),
        at(1, FilePosition(0, 0)),
        at(1, None),
    ]
    assert [each.order for each in ordered] == sorted({each.order for each in ordered})


@pytest.mark.parametrize("value", [{"offsets": {"topic": {"0": 1}}}, [], None, 1, {"version": "x"}, {}])
def test_what_is_no_offset_of_a_table(value):
    with pytest.raises(SourceError, match="belongs to another source"):
        TableOffset.from_json(value)


def test_a_newer_version():
    value = replace(TableOffset("u", SnapshotPosition(1), 0, PLANNING)).to_json()
    with pytest.raises(SourceError, match="version 2"):
        TableOffset.from_json({**value, "version": 2})
