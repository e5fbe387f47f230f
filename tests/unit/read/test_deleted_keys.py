"""Merged keys of equality deletes against dictionaries, hash collisions forced."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamlake.index.keys.key_codec as key_codec
import streamlake.read.deleted_keys as deleted_keys
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.keys.keys import Keys
from streamlake.read.deleted_keys import NEVER, DeletedKeysBuilder, KeyCoding, merged_keys
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.type_json import parse_primitive

VALUES = {
    "long": [None, 0, 1, -1, 2**63 - 1, -(2**63), 5, 6, 7, 8],
    "int": [None, 0, 1, -1, 2**31 - 1, -(2**31)],
    "string": [None, "", "a", "b", "c" * 40],
    "double": [None, 0.0, -0.0, math.nan, 1.5, -math.inf],
    "binary": [None, b"", b"\x00", b"\xff", b"\xff\xff"],
    "boolean": [None, True, False],
}
ARROW = {
    "long": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}


def coding_of(types):
    fields = [NestedField(at, f"c{at}", parse_primitive(name)) for at, name in enumerate(types)]
    return KeyCoding(fields)


def coded(coding, types, rows):
    return coding.code([pa.array([row[at] for row in rows], ARROW[name]) for at, name in enumerate(types)])


def canonical(row):
    return tuple(
        ("nan" if math.isnan(value) else value + 0.0) if isinstance(value, float) else (type(value), value)
        for value in row
    )


def few_hashes(monkeypatch):
    encode = KeyCodec.encode

    def colliding(self, columns):
        keys = encode(self, columns)
        return Keys(keys.hashes & np.uint64(3), keys.nulls, keys.data)

    monkeypatch.setattr(key_codec.KeyCodec, "encode", colliding)


@pytest.fixture(params=["hashes", "collisions"])
def hashes(request, monkeypatch):
    # What a coding does without hashes is not changed by this.
    if request.param == "collisions":
        few_hashes(monkeypatch)


@pytest.mark.usefixtures("hashes")
@pytest.mark.parametrize("pending", [1, 1 << 20])
@pytest.mark.parametrize(
    "types",
    [
        ["long"],
        ["double"],
        ["boolean"],
        ["string"],
        ["binary"],
        ["long", "string"],
        ["int", "double", "binary"],
    ],
)
def test_newest_equals_a_dictionary(types, pending, monkeypatch):
    monkeypatch.setattr(deleted_keys, "_PENDING_ROWS", pending)
    row = st.tuples(*(st.sampled_from(VALUES[name]) for name in types))

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.lists(row, max_size=5), st.integers(0, 9)), max_size=6),
        st.lists(row, max_size=12),
    )
    def check(files, asked):
        coding = coding_of(types)
        model = {}
        for rows, rank in files:
            for each in rows:
                model[canonical(each)] = max(rank, model.get(canonical(each), NEVER))
        keys = merged_keys((coded(coding, types, rows), rank) for rows, rank in files)
        assert len(keys) >= len(model)
        found = keys.newest(coded(coding, types, asked))
        assert found.tolist() == [model.get(canonical(each), NEVER) for each in asked]

    check()


@pytest.mark.parametrize("spread", [1, 1 << 20, 1 << 43])
def test_many_keys(spread):
    """Dense and sparse keys, some far out: by table or by binary search, packed or not."""
    random = np.random.default_rng(spread)
    coding = coding_of(["long"])
    builder = DeletedKeysBuilder()
    model = {}
    for rank in range(7):
        keys = random.integers(0, 30_000, 10_000) * spread - 5
        if rank % 2:
            keys[:3] = [-(2**63), 2**63 - 1, 2**62]
        model |= dict.fromkeys(keys.tolist(), rank)
        builder.add(coding.code([pa.array(keys)]), rank)
    built = builder.build()
    assert len(built) == len(model)
    asked = np.concatenate(
        [
            np.array(sorted(model)),
            random.integers(-(2**63), 2**63 - 1, 1000),
            random.integers(0, 30_000, 1000),
        ]
    )
    assert built.newest(coding.code([pa.array(asked)])).tolist() == [
        model.get(key, NEVER) for key in asked.tolist()
    ]


def test_four_million_keys_stay_small():
    """12 bytes for a key and its rank, and the table that finds it; what was read of a file goes when it is merged."""
    coding = coding_of(["long"])
    builder = DeletedKeysBuilder()
    for rank in range(8):
        builder.add(coding.code([pa.array(np.random.default_rng(rank).integers(0, 1 << 40, 500_000))]), rank)
    built = builder.build()
    assert len(built) > 3_990_000
    assert built.nbytes < 130 << 20


def test_nothing_is_deleted_by_no_keys():
    coding = coding_of(["long"])
    keys = merged_keys([(coding.code([pa.array([], pa.int64())]), 3)])
    assert len(keys) == 0
    assert keys.newest(coding.code([pa.array([1, None])])).tolist() == [NEVER, NEVER]
