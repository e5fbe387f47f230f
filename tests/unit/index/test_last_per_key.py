"""The last change of each key, against a dict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.index.keys.key_codec import SEED, KeyCodec, Keys
from streamlake.index.keys.sequence_values import SequenceCodec
from streamlake.index.last_per_key import last_per_key
from streamlake.spec.types.data_types import DateType, DoubleType, LongType, StringType
from tests.unit.index.key_samples import VALUES, columns_of, fields_of, key_types, plain_key, rows_of
from tests.unit.index.keys.test_xxh64 import undone


def model(keys: list[Any], order: list[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    best: dict[Any, int] = {}
    for row, key in enumerate(keys):
        if key not in best or order[row] >= order[best[key]]:
            best[key] = row
    winners = sorted(best.values())
    return winners, [winners.index(best[key]) for key in keys]


def check(keys: Keys, plain: list[Any], columns: list[Any], order: list[tuple[Any, ...]]) -> None:
    winners, group = last_per_key(keys, columns)
    assert winners.dtype == group.dtype == np.int64
    assert (winners.tolist(), group.tolist()) == model(plain, order)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_last_change_wins(data: st.DataObject) -> None:
    types = data.draw(key_types(2))
    rows = data.draw(rows_of(types))
    keys = KeyCodec(fields_of(types)).encode(columns_of(types, rows))
    if keys.data is not None:
        kept = data.draw(st.sampled_from([0, 1, 3, 2**64 - 1]))
        keys = replace(keys, hashes=keys.hashes & np.uint64(kept))
    plain = [plain_key(row) for row in rows]
    numbers = st.lists(st.integers(-2, 2), min_size=len(rows), max_size=len(rows))
    sequence_value, source = data.draw(numbers), data.draw(numbers)
    check(keys, plain, [], [()] * len(rows))
    check(keys, plain, [np.array(source, dtype=np.int64)], [(value,) for value in source])
    columns = [pa.array(sequence_value, pa.int64()), np.array(source, dtype=np.int64)]
    check(keys, plain, columns, list(zip(sequence_value, source, strict=True)))
    texts = [str(value) for value in sequence_value]
    sequence_values = SequenceCodec(fields_of([StringType()])).encode([pa.array(texts, pa.string())])
    check(
        keys,
        plain,
        [sequence_values, np.array(source, dtype=np.int64)],
        list(zip(texts, source, strict=True)),
    )
    codec = SequenceCodec(fields_of([LongType(), DateType()]))
    sequence_values = codec.encode([pa.array(sequence_value, pa.int64()), pa.array(source, pa.date32())])
    check(keys, plain, [sequence_values], list(zip(sequence_value, source, strict=True)))


def test_many_rows_of_few_keys_with_collisions() -> None:
    generator = np.random.default_rng(3)
    texts = generator.integers(0, 3_000, 20_000)
    keys = KeyCodec(fields_of([StringType()])).encode([pa.array([f"key {text}" for text in texts])])
    source = generator.permutation(20_000)
    for mask in (0, 3, 1023):
        forced = replace(keys, hashes=keys.hashes & np.uint64(mask))
        winners, group = last_per_key(forced, [source])
        best: dict[int, int] = {}
        for row, text in enumerate(texts.tolist()):
            if text not in best or source[row] > source[best[text]]:
                best[text] = row
        assert winners.tolist() == sorted(best.values())
        assert winners[group].tolist() == [best[text] for text in texts.tolist()]


def test_null_and_the_value_with_its_hash_are_two_keys() -> None:
    value = undone(SEED, SEED, 8)
    signed = value - 2**64 if value >= 2**63 else value
    keys = KeyCodec(fields_of([LongType()])).encode([pa.array([None, signed, None, signed, 7, signed])])
    winners, group = last_per_key(keys)
    assert winners.tolist() == [2, 4, 5]
    assert group.tolist() == [0, 2, 0, 2, 1, 2]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int) -> None:
    keys = KeyCodec(fields_of([DoubleType()])).encode([pa.array(VALUES[DoubleType()][:rows], pa.float64())])
    winners, group = last_per_key(keys, [np.zeros(rows, dtype=np.int64)])
    assert winners.tolist() == group.tolist() == list(range(rows))
