"""Pairing and netting of rows, as numbers: any keys, any number of rows per key."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.errors import FeatureUnsupportedError
from streamlake.read.changes.netting import NO_IDENTITY, Comparison, net_changes
from streamlake.read.changes.row_codes import equal_rows, row_codes, row_parts
from streamlake.records import RowKind
from streamlake.spec.types.data_types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    VariantType,
)

REMOVED, ADDED = (RowKind.UPDATE_BEFORE, RowKind.DELETE), (RowKind.INSERT, RowKind.UPDATE_AFTER)


@st.composite
def histories(draw: Any) -> tuple[Counter[Any], list[tuple[bool, int, int]]]:
    """Rows (key, value) that there are, and what happens to them: (added, key, value)."""
    row = st.tuples(st.integers(NO_IDENTITY, 4), st.integers(0, 2))
    before = Counter(draw(st.lists(row, max_size=6)))
    state, events = Counter(before), []
    for _ in range(draw(st.integers(0, 12))):
        if +state and draw(st.booleans()):
            key, value = draw(st.sampled_from(sorted((+state).elements())))
            state[key, value] -= 1
            events.append((False, key, value))
        else:
            key, value = draw(row)
            state[key, value] += 1
            events.append((True, key, value))
    return before, events


@given(histories(), st.booleans())
def test_net_changes_lead_from_the_first_state_to_the_last(history: Any, keyed: bool) -> None:
    before, events = history
    added = np.array([event[0] for event in events], dtype=bool)
    keys = np.array([event[1] for event in events], dtype=np.int64)
    values = np.array([event[2] for event in events], dtype=np.int64)
    whole = keys * 100 + values if keyed else values
    compared = Comparison(lambda left, right: values[left] == values[right], lambda rows: whole[rows])
    found = net_changes(added, keys, compared, keyed=keyed)
    name = (lambda row: (int(keys[row]), int(values[row]))) if keyed else (lambda row: int(values[row]))
    state: Counter[Any] = Counter(before.elements() if keyed else (value for _, value in before.elements()))
    expected = Counter(state)
    for (plus, *_), row in zip(events, range(len(events)), strict=True):
        expected[name(row)] += 1 if plus else -1
    for row, event, kind in zip(found.rows, found.events, found.kinds, strict=True):
        assert added[row] == (kind in ADDED)
        assert event >= row
        state[name(row)] += 1 if kind in ADDED else -1
    assert +state == +expected
    assert min(state.values(), default=0) >= 0
    pairs = np.flatnonzero(found.kinds == RowKind.UPDATE_BEFORE)
    for at in pairs:
        old, new = found.rows[at], found.rows[at + 1]
        assert found.kinds[at + 1] == RowKind.UPDATE_AFTER
        assert keys[old] == keys[new] != NO_IDENTITY
        assert values[old] != values[new]
    singles = Counter(kind in ADDED for kind in found.kinds if kind in (RowKind.INSERT, RowKind.DELETE))
    left: Counter[Any] = Counter()
    for row, kind in zip(found.rows, found.kinds, strict=True):
        if kind in (RowKind.INSERT, RowKind.DELETE):
            left[name(row)] += 1 if kind in ADDED else -1
    # Nothing that is left could still cancel out.
    assert sum(abs(each) for each in left.values()) == sum(singles.values())


def test_rows_are_numbered_by_value() -> None:
    nan = float("nan")
    doubles = pa.array([0.0, -0.0, nan, nan, None, None, 1.0])
    as_key = row_codes([doubles], [DoubleType()], as_key=True).tolist()
    as_value = row_codes([doubles], [DoubleType()], as_key=False).tolist()
    assert as_key[0] == as_key[1] != as_key[2] == as_key[3] != as_key[4] == as_key[5]
    assert as_value[0] != as_value[1]
    texts = pa.array(["a", "b", "a", None, None, "", ""])
    both = row_codes([doubles, texts], [DoubleType(), StringType()], as_key=True).tolist()
    assert len(set(both)) == 7
    index = np.arange(7)
    same = equal_rows([doubles, texts], [DoubleType(), StringType()], index, np.roll(index, -1))
    assert not same.any()
    assert equal_rows([doubles, texts], [DoubleType(), StringType()], index, index).all()
    parts = row_parts([texts], [NestedField(1, "t", StringType())], 3)
    assert parts[0] == parts[2]
    assert parts[3] == parts[4]
    assert set(parts) <= {0, 1, 2}


def test_nested_values_are_compared() -> None:
    lists = pa.array([[1, 2], [1, 2], [1], None, [], None], pa.list_(pa.int64()))
    codes = row_codes([lists], [ListType(3, LongType())], as_key=False).tolist()
    assert codes[0] == codes[1]
    assert codes[3] == codes[5]
    assert len(set(codes)) == 4
    struct = StructType((NestedField(1, "d", DecimalType(5, 2)),))
    structs = pa.array([{"d": Decimal("1.00")}, {"d": None}, None], pa.struct([("d", pa.decimal128(5, 2))]))
    assert len(set(row_codes([structs], [struct], as_key=False).tolist())) == 3


def test_values_that_cannot_be_compared_are_refused() -> None:
    blobs = pa.array([{"a": b""}])
    with pytest.raises(FeatureUnsupportedError, match="cannot be compared; leave the column out"):
        row_codes([blobs], [VariantType()], as_key=False)
