"""Offset values: their JSON, fair limits, splitting."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.errors import SourceError
from streamlake.source.offsets import OffsetRange, SourceOffsets, flatten, grouped, limited, nest, split

PARTITIONS = st.tuples(st.sampled_from(["a", "b", "ü"]), st.integers(0, 20))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**62), max_size=12)


@given(OFFSETS, OFFSETS, st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=8)))
def test_offsets_survive_json_and_pickle(positions, first, ids):
    offsets = SourceOffsets(positions, first, ids)
    assert SourceOffsets.from_json(json.loads(offsets.to_text())) == offsets
    assert pickle.loads(pickle.dumps(offsets)) == offsets


@given(st.permutations(list(flatten({"b": {"1": 5, "10": 6, "2": 7}, "a": {"0": 1}}).items())))
def test_equal_offsets_have_equal_text(items):
    assert SourceOffsets(dict(items)).to_text() == (
        '{"offsets": {"a": {"0": 1}, "b": {"1": 5, "2": 7, "10": 6}}}'
    )


@pytest.mark.parametrize(
    "value", [{}, [], {"offsets": {"t": 5}}, {"offsets": {"t": {"x": 5}}}, {"timestamp": 1}]
)
def test_foreign_offsets_are_refused(value):
    with pytest.raises(SourceError, match="another checkpoint location"):
        SourceOffsets.from_json(value)


def test_nest_is_the_inverse_of_flatten():
    nested = {"a": {"0": 1, "3": 4}, "b": {"7": 0}}
    assert nest(flatten(nested)) == nested


@given(OFFSETS, st.integers(1, 10_000))
def test_a_limit_is_kept_and_used_up(backlogs, limit):
    start = {part: part[1] for part in backlogs}
    end = {part: start[part] + size % 5_000 for part, size in backlogs.items()}
    ends = limited(start, end, limit)
    assert all(start[part] <= ends[part] <= end[part] for part in end)
    taken = sum(ends[part] - start[part] for part in end)
    assert taken == min(limit, sum(end[part] - start[part] for part in end))


def test_a_limit_is_shared_in_proportion_to_the_backlog():
    start = {("t", 0): 0, ("t", 1): 100, ("t", 2): 7}
    end = {("t", 0): 600, ("t", 1): 400, ("t", 2): 107}
    assert limited(start, end, 100) == {("t", 0): 60, ("t", 1): 130, ("t", 2): 17}


def test_a_small_partition_is_not_starved():
    start = {("t", 0): 0, ("t", 1): 0}
    ends = limited(start, {("t", 0): 1_000_000, ("t", 1): 3}, 10)
    assert ends == {("t", 0): 9, ("t", 1): 1}


def test_no_limit_takes_everything_and_never_goes_back():
    assert limited({("t", 0): 5, ("t", 1): 9}, {("t", 0): 8, ("t", 1): 4}, None) == {("t", 0): 8, ("t", 1): 9}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10_000)), max_size=6),
    st.one_of(st.none(), st.integers(1, 50)),
)
def test_split_pieces_cover_the_ranges_exactly(sizes, least):
    ranges = [OffsetRange("t", at, low, low + size) for at, (low, size) in enumerate(sizes)]
    pieces = split(ranges, least)
    for whole in ranges:
        covered = [offset for p in pieces if p.partition == whole.partition for offset in (p.start, p.until)]
        if whole.size == 0:
            assert covered == []
        else:
            assert covered[0] == whole.start
            assert covered[-1] == whole.until
            assert covered[1:-1:2] == covered[2:-1:2]
    assert all(piece.size > 0 for piece in pieces)


def test_large_ranges_are_split_more_often():
    pieces = split([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], 10)
    assert [piece.partition for piece in pieces].count(0) == 9
    assert [piece.partition for piece in pieces].count(1) == 1


def test_reaches_looks_at_every_partition_and_at_the_topic_id():
    target = SourceOffsets({("t", 0): 5, ("t", 1): 6}, {}, {"t": "one"})
    assert SourceOffsets({("t", 0): 5, ("t", 1): 9}, {}, {"t": "one"}).reaches(target)
    assert not SourceOffsets({("t", 0): 5}, {}, {"t": "one"}).reaches(target)
    assert not SourceOffsets({("t", 0): 5, ("t", 1): 9}, {}, {"t": "two"}).reaches(target)


def test_a_log_that_begins_anew_is_not_reached_by_a_position_of_the_old_one():
    target = SourceOffsets({("t", 0): 8}, {("t", 0): 0})
    assert not SourceOffsets({("t", 0): 10}).reaches(target)
    assert not SourceOffsets({("t", 0): 4}, {("t", 0): 0}).reaches(target)
    assert SourceOffsets({("t", 0): 8}, {("t", 0): 0}).reaches(target)


@given(st.lists(st.integers(1, 600_000), max_size=60), st.integers(1, 8))
def test_groups_hold_all_ranges_in_order_and_are_worth_a_task(sizes, tasks):
    ranges = [OffsetRange("t", at, 0, size) for at, size in enumerate(sizes)]
    groups = grouped(ranges, tasks)
    assert [piece for group in groups for piece in group] == ranges
    assert all(groups)
    if len(ranges) <= tasks:
        assert len(groups) == len(ranges)
    else:
        assert len(groups) <= tasks + 1 + 2 * sum(sizes) // 250_000
        alone = max(sizes)
        assert all(sum(piece.size for piece in group) <= 250_000 + alone for group in groups)


def test_many_small_ranges_share_as_few_tasks_as_run_at_once():
    ranges = [OffsetRange("t", at, 0, 100) for at in range(200)]
    assert [len(group) for group in grouped(ranges, 2)] == [100, 100]
    assert [len(group) for group in grouped(ranges, 200)] == [1] * 200


def test_an_id_of_zeros_is_none():
    logged = {
        "offsets": {"t": {"0": 1}, "u": {"0": 1}},
        "topic-ids": {
            "t": "00000000-0000-0000-0000-000000000000",
            "u": "5c0e0000-0000-0000-0000-000000000001",
        },
    }
    assert SourceOffsets.from_json(logged).topic_ids == {"u": "5c0e0000-0000-0000-0000-000000000001"}
