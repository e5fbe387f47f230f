"""Rows that stay with the task that reads them: every one is checked, and truncates go to all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamlake.errors import MisplacedKeyError
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.pipeline.kafka.bucket_owner import BucketOwner
from streamlake.pipeline.kafka.owned_ranges import ranges_by_bucket
from streamlake.records import ROW_KIND, ROW_ORDER, TRUNCATE_BELOW
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.data_types import LongType, NestedField
from streamlake.tasks.intake import Intake, KeyRoute
from streamlake.tasks.shuffle_blocks import unpacked
from tests.helpers.error_catalogue import documented
from tests.unit.pipeline.kafka.test_bucket_owner import intended

TEXT = MessageKey("murmur2", (KeyPart(column=0),))
CODEC = KeyCodec((NestedField(1, "id", LongType()),))


def route(buckets: int, message_key: MessageKey | None = TEXT) -> KeyRoute:
    return KeyRoute(0, buckets, ("id",), CODEC, "op", False, "lake/t: column 'op'", message_key)


def rows(ids: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"id": ids, "op": ["u", "d"] * (len(ids) // 2) + ["u"] * (len(ids) % 2)})


def test_rows_of_the_bucket_pass_in_their_order() -> None:
    ids = list(range(100))
    found = Bucketing(4, TEXT).of_columns([pa.array(ids)], CODEC).tolist()
    for bucket in range(4):
        mine = [id_ for id_, each in zip(ids, found, strict=True) if each == bucket]
        passed = route(4).owned(rows(mine), 1_000, bucket)
        assert passed.column("id").to_pylist() == mine
        assert passed.schema.names == ["id", ROW_KIND, ROW_ORDER]
        assert passed.column(ROW_ORDER).to_pylist() == list(range(1_000, 1_000 + len(mine)))
        other = next(id_ for id_, each in zip(ids, found, strict=True) if each != bucket)
        for at in (0, len(mine) // 2, len(mine)):
            with pytest.raises(
                MisplacedKeyError, match=rf"the row with the key \{{'id': {other}\}} did not come"
            ) as raised:
                route(4).owned(rows([*mine[:at], other, *mine[at:]]), 0, bucket)
            never = BucketOwner("never", 8, "/lake/orders")
            never.intended = intended()
            with pytest.raises(MisplacedKeyError) as stopped:
                never.misplaced(raised.value, (0, 0))
            documented("misplaced-key-error", stopped.value)


def test_a_single_bucket_has_all_keys_and_truncates() -> None:
    truncate = pa.record_batch({TRUNCATE_BELOW: [17]})
    assert route(1, None).owned(rows([1, 2, 3]), 0, 0).num_rows == 3
    assert route(1, None).owned(truncate, 3, 0).to_pydict() == {TRUNCATE_BELOW: [17], ROW_ORDER: [3]}
    with pytest.raises(MisplacedKeyError, match="a truncate concerns all partitions"):
        route(2).owned(truncate, 0, 0)


def test_truncates_come_ahead_of_all_rows() -> None:
    truncate = pa.record_batch({TRUNCATE_BELOW: [17]})
    shuffle_blocks = [
        shuffle_block
        for shuffle_block in route(2).shuffle_blocks(truncate, 9)
        if shuffle_block.column("place").to_pylist() == [-1]
    ]
    batches = [batch for shuffle_block in unpacked(iter(shuffle_blocks)) for batch in shuffle_block.batches()]
    assert [batch.to_pydict() for batch in batches] == [{TRUNCATE_BELOW: [17], ROW_ORDER: [9]}] * 2


def test_ranges_of_a_bucket_are_together_in_their_order() -> None:
    intakes = {"a": Intake(0, None, route(2)), "b": Intake(1, None, route(3))}  # type: ignore[arg-type]
    pieces = [
        OffsetRange(topic, number, at, at + 5) for at in (0, 5) for topic in "ab" for number in range(6)
    ]
    targets = {0: Bucketing(2), 1: Bucketing(3)}

    class Target:
        def __init__(self, bucketing: Bucketing) -> None:
            self.buckets = bucketing.count

    pieces.append(OffsetRange("other", 0, 0, 5))
    groups = ranges_by_bucket(pieces, intakes, {number: Target(each) for number, each in targets.items()})  # type: ignore[misc]
    assert len(groups) == 5
    assert [(piece.topic, piece.partition, piece.start) for piece in groups[1]] == [
        ("a", partition, start) for start in (0, 5) for partition in (1, 3, 5)
    ]
    assert {piece.partition % 3 for piece in groups[4]} == {2}
    assert sum(map(len, groups)) == 24
