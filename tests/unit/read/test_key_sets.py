"""Key sets against a brute-force comparison."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.read.key_sets import KeySet

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.string())])), ("c", pa.binary(2))])
keys = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 3),
        "s": st.none() | st.fixed_dictionaries({"b": st.none() | st.sampled_from("xyz")}),
        "c": st.none() | st.sampled_from([b"00", b"01"]),
    }
)
PATHS = [("a",), ("s", "b"), ("c",)]


def values(row, paths):
    flat = {"a": row["a"], "s": row["s"] and row["s"]["b"], "c": row["c"]}
    return tuple(flat[path[0]] for path in paths)


@settings(max_examples=200, deadline=None)
@given(st.lists(keys, max_size=8), st.lists(keys, max_size=8), st.integers(1, 3))
def test_contains_exactly_its_keys(inside, asked, width):
    paths = PATHS[:width]
    half = len(inside) // 2
    batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in (inside[:half], inside[half:])]
    wanted = {values(row, paths) for row in inside}
    found = KeySet(paths, batches).contains(pa.RecordBatch.from_pylist(asked, SCHEMA))
    assert found.tolist() == [values(row, paths) in wanted for row in asked]


def test_an_empty_set_holds_nothing():
    batch = pa.RecordBatch.from_pylist([{"a": None, "s": None, "c": None}], SCHEMA)
    assert KeySet(PATHS, []).contains(batch).tolist() == [False]
