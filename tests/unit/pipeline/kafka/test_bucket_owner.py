"""When changes need no shuffle, and what is made of it when they did."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from streamlake import KafkaSource
from streamlake.errors import InvalidOptionError, MisplacedKeyError
from streamlake.index.bucketing import Bucketing
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.index.runs.run import RunRef
from streamlake.index.state import IndexState
from streamlake.pipeline.kafka import bucket_owner
from streamlake.pipeline.kafka.bucket_owner import BucketOwner, Intended, fitting_buckets
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.data_types import LongType, NestedField

FIELDS = (NestedField(1, "id", LongType()),)
TEXT = MessageKey("murmur2", (KeyPart(column=0),))
STATE = IndexState("uuid", (1,), (), 2, (), 0, None)
SOURCE = KafkaSource("nowhere:1", "t", schema="id long")


def of(bucketing: Bucketing) -> IndexState:
    return replace(STATE, buckets=bucketing.count, message_key=bucketing.name)


def intended(partitions: int = 4, checkpoint_id: int = 0, cores: int = 2, **options: Any) -> Intended:
    source = KafkaSource("nowhere:1", "t", schema="id long", options=options)
    ranges = [OffsetRange("t", partition, 0, 100) for partition in range(partitions)]
    return Intended(source, {"t": partitions}, ranges, checkpoint_id, cores)


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> BucketOwner:
    """Of a topic in four partitions with the ids as text for keys, on two cores."""
    keys = [str(number).encode() for number in range(50)]
    found = [(key, (murmur2(key) & 0x7FFFFFFF) % 4) for key in keys]
    monkeypatch.setattr(bucket_owner, "sampled_keys", lambda source, ranges: found)
    made = BucketOwner("auto", 2, "lake/t")
    made.intended = intended()
    return made


@pytest.mark.parametrize(
    ("partitions", "wanted", "best"),
    [
        ((4,), 2, 2),
        ((12,), 5, 6),
        ((7,), 4, 7),
        ((2,), 8, 2),
        ((4, 6), 1, 1),
        ((4, 6), 2, 2),
        ((4, 6), 3, 2),
        ((1, 9), 2, 1),
    ],
)
def test_how_many_buckets(partitions: tuple[int, ...], wanted: int, best: int) -> None:
    assert fitting_buckets(partitions, wanted) == best


def test_buckets_are_found_out_once(owner: BucketOwner) -> None:
    found = owner.bucketing(STATE, FIELDS)
    assert found == Bucketing(2, TEXT)
    assert owner.owns(found, (0, 0))
    assert not owner.owns(Bucketing(2), (0, 0))
    assert not owner.owns(Bucketing(3, TEXT), (0, 0))
    assert owner.bucketing(of(found), FIELDS) == found


@pytest.mark.parametrize("partitions", [2, 6, 100])
def test_more_partitions_change_nothing_where_the_buckets_divide_them(
    owner: BucketOwner, partitions: int
) -> None:
    owner.intended = intended(partitions)
    assert owner.bucketing(of(Bucketing(2, TEXT)), FIELDS) == Bucketing(2, TEXT)
    assert owner.owns(Bucketing(2, TEXT), (0, 0))


def test_other_partitions_take_other_buckets(owner: BucketOwner) -> None:
    owner.intended = intended(9)
    assert not owner.owns(Bucketing(2, TEXT), (0, 0))
    assert owner.bucketing(of(Bucketing(2, TEXT)), FIELDS) == Bucketing(3, TEXT)
    # Of a topic with fewer, a shuffle by the same buckets is as good.
    owner.intended = intended(1)
    assert owner.bucketing(of(Bucketing(2, TEXT)), FIELDS) == Bucketing(2, TEXT)
    never = BucketOwner("never", 2, "lake/t")
    never.intended = intended(1)
    assert never.bucketing(of(Bucketing(2, TEXT)), FIELDS) == Bucketing(1, TEXT)


def test_where_a_shuffle_is_as_good(owner: BucketOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.intended = intended(1)
    assert owner.bucketing(STATE, FIELDS) == Bucketing(2)
    owner.intended = intended()
    runs = (RunRef("r", 0, 2, 6_000_000, 1, 1),)
    assert owner.bucketing(replace(STATE, runs=runs), FIELDS) == Bucketing(2)
    owner.intended = intended(9)
    assert owner.bucketing(replace(of(Bucketing(2, TEXT)), runs=runs), FIELDS) == Bucketing(2, TEXT)
    owner.intended = intended()
    owner.intended = intended(cores=8)
    assert not owner.owns(Bucketing(2, TEXT), (0, 0))
    owner.intended = intended(**{"min-partitions": 8})
    assert not owner.owns(Bucketing(2, TEXT), (0, 0))
    owner.intended = None
    assert owner.bucketing(STATE, FIELDS) == Bucketing(2)
    assert not owner.owns(Bucketing(2, TEXT), (0, 0))
    always = BucketOwner("always", 2, "lake/t")
    always.intended = intended()
    assert always.bucketing(STATE, FIELDS) == Bucketing(2)
    assert not always.owns(Bucketing(2, TEXT), (0, 0))


def test_it_is_tried_again_ever_more_seldom(owner: BucketOwner, caplog: pytest.LogCaptureFixture) -> None:
    until = (0, 0)
    tries = []
    for checkpoint_id in range(40):
        owner.intended = intended(checkpoint_id=checkpoint_id)
        if owner.owns(Bucketing(2, TEXT), until):
            tries.append(checkpoint_id)
            until = owner.misplaced(MisplacedKeyError("a row is elsewhere"), until)
            assert not owner.owns(Bucketing(2, TEXT), until)
    assert tries == [0, 1, 3, 7, 15, 31]
    assert "lake/t: a row is elsewhere; this checkpoint and the next 3 are shuffled by key" in caplog.text
    # Another checkpoint directory counts from 0 again.
    owner.intended = intended(checkpoint_id=0)
    assert owner.owns(Bucketing(2, TEXT), (3, 50_000))


def test_keys_that_are_no_rows_keys(
    owner: BucketOwner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def sampled(source: KafkaSource, ranges: Any) -> list[tuple[bytes | None, int]]:
        asked.append(1)
        return [(b"key-%d" % number, 0) for number in range(50)]

    monkeypatch.setattr(bucket_owner, "sampled_keys", sampled)
    for checkpoint_id in range(20):
        owner.intended = intended(checkpoint_id=checkpoint_id)
        assert owner.bucketing(STATE, FIELDS) == Bucketing(2)
    assert len(asked) == 5
    never = BucketOwner("never", 2, "lake/t")
    never.intended = intended()
    with pytest.raises(
        InvalidOptionError, match=r"lake/t: .* 'never', but the keys of the messages, such as b'key-0'"
    ):
        never.bucketing(STATE, FIELDS)


@pytest.mark.parametrize("samples", [[], [(b"1", 1)] * 3, [(b"1", 1)] * 40 + [(None, 0)]])
def test_too_few_samples_or_messages_without_a_key(
    owner: BucketOwner, monkeypatch: pytest.MonkeyPatch, samples: Any
) -> None:
    monkeypatch.setattr(bucket_owner, "sampled_keys", lambda source, ranges: samples)
    assert owner.bucketing(STATE, FIELDS) == Bucketing(2)


def test_never_stops(caplog: pytest.LogCaptureFixture) -> None:
    never = BucketOwner("never", 8, "lake/t")
    never.intended = intended()
    assert never.owns(Bucketing(2, TEXT), (9, 50))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(MisplacedKeyError, match=r"lake/t: x\. .*shuffle=auto"),
    ):
        never.misplaced(MisplacedKeyError("x"), (0, 0))
    assert not caplog.records
