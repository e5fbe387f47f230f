"""Keys go to the partitions that producers choose."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.index.keys.partitioners import crc32, murmur2

KEYS = st.lists(st.binary(max_size=40) | st.binary(min_size=100, max_size=300), max_size=60)


def hashed(hash_, keys):
    return hash_(*byte_strings(pa.array(keys, pa.large_binary()))).tolist()


@settings(max_examples=60, deadline=None)
@given(keys=KEYS)
def test_murmur2_is_that_of_the_producers(keys):
    assert hashed(murmur2, keys) == [reference(key) & 0x7FFFFFFF for key in keys]


@settings(max_examples=60, deadline=None)
@given(keys=KEYS)
def test_crc32_is_that_of_zlib(keys):
    assert hashed(crc32, keys) == [zlib.crc32(key) for key in keys]


@pytest.mark.parametrize(
    ("key", "signed"),
    # What org.apache.kafka.common.utils.Utils.murmur2 gives.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
    ],
)
def test_vectors_of_kafka(key, signed):
    assert hashed(murmur2, [key]) == [signed & 0x7FFFFFFF]


def test_blocks_of_many_rows():
    keys = [str(number * 7919).encode() for number in range(70_000)]
    found = hashed(murmur2, keys)
    for at in (0, 1, 32_767, 32_768, 65_535, 69_999):
        assert found[at] == reference(keys[at]) & 0x7FFFFFFF
    data, starts, lengths = byte_strings(pa.array(keys, pa.large_binary()))
    some = np.array([5, 40_000])
    assert murmur2(data, starts[some], lengths[some]).tolist() == [found[5], found[40_000]]
