"""Topics that are deleted, and made anew under their names, on a broker that creates the topics that it is asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamlake import KafkaSource, clock
from streamlake.errors import DataLossError, SourceError
from streamlake.source import consumers, fetcher, topic_now
from streamlake.source.cluster import KafkaCluster
from streamlake.source.fetcher import fetch_range
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner
from tests.helpers.broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    yield kafka_broker
    consumers.close_idle_consumers()


def source_of(broker: KafkaBroker, topic: str, **options: Any) -> KafkaSource:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return KafkaSource(broker.bootstrap_servers, topic, format="raw", options=named)


def fill(broker: KafkaBroker, topic: str, tag: str, count: int, **producer: Any) -> None:
    broker.produce(topic, [b"%s-%d" % (tag.encode(), at) for at in range(count)], **producer)


def in_batches_of_one(broker: KafkaBroker, topic: str, tag: str, count: int) -> None:
    """A poll of so many batches leaves some of them with the consumer."""
    fill(broker, topic, tag, count, batch_size=0, linger_ms=0)


def make_anew(broker: KafkaBroker, topic: str) -> None:
    broker.delete_topic(topic)
    broker.create_topic(topic)


def topic_id(source: KafkaSource, topic: str) -> str:
    with KafkaCluster(source) as cluster:
        return cluster.topics().topic_ids[topic]


def values(source: KafkaSource, piece: OffsetRange, chunk: int = 1_000) -> list[bytes]:
    batches = list(fetch_range(source, piece, chunk_records=chunk))
    return pa.Table.from_batches(batches)["value"].to_pylist() if batches else []


def test_a_replay_of_what_was_logged_of_the_old_topic_is_refused(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, "old", 100)
    source = source_of(broker, topic, max_offsets_per_trigger=50)
    with KafkaCluster(source) as cluster:
        plan = OffsetPlanner(source, cluster)
        start = plan.initial()
        first = plan.up_to(SourceOffsets({}), replace(plan.latest(start), first=start.positions))
        pending = plan.up_to(first, plan.latest(first))
    assert (first.positions, pending.positions) == ({(topic, 0): 50}, {(topic, 0): 100})
    logged = [SourceOffsets.from_json(json.loads(each.to_text())) for each in (first, pending)]
    make_anew(broker, topic)
    fill(broker, topic, "new", 150)
    with (
        KafkaCluster(source) as cluster,
        pytest.raises(DataLossError, match=f"topic {topic} was deleted and created again"),
    ):
        OffsetPlanner(source, cluster).ranges(*logged)
    lenient = source_of(broker, topic, fail_on_data_loss=False)
    with KafkaCluster(lenient) as cluster:
        plan = OffsetPlanner(lenient, cluster)
        assert plan.ranges(*logged) == []
        after = plan.up_to(logged[1], plan.latest(logged[1]))
        due = plan.ranges(logged[1], after)
    assert due == [OffsetRange(topic, 0, 0, 150)]
    assert values(lenient, due[0]) == [b"new-%d" % at for at in range(150)]


def test_what_was_logged_without_an_id_is_read_with_that_of_now(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, "a", 10)
    source = source_of(broker, topic)
    with KafkaCluster(source) as cluster:
        old = (
            SourceOffsets.from_json({"offsets": {topic: {"0": 4}}}),
            SourceOffsets.from_json({"offsets": {topic: {"0": 9}}}),
        )
        [piece] = OffsetPlanner(source, cluster).ranges(*old)
    assert piece.topic_id == topic_id(source, topic) != ""
    assert values(source, piece) == [b"a-%d" % at for at in range(4, 9)]


def test_a_task_finds_that_its_topic_is_another_one(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, "old", 50)
    source = source_of(broker, topic)
    piece = OffsetRange(topic, 0, 10, 40, topic_id(source, topic))
    assert len(values(source, piece)) == 30
    make_anew(broker, topic)
    fill(broker, topic, "new", 50)
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and created again"):
        values(source, piece)
    assert values(source_of(broker, topic, fail_on_data_loss=False), piece) == []
    assert values(source, replace(piece, topic_id=topic_id(source, topic)))[0] == b"new-10"


def test_a_topic_that_is_made_anew_within_a_range(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_HEARS_SECONDS", 0.2)
    for options, error in (({}, DataLossError), ({"fail_on_data_loss": False}, SourceError)):
        topic = broker.create_topic()
        in_batches_of_one(broker, topic, "old", 1_000)
        source = source_of(broker, topic, **options)
        piece = OffsetRange(topic, 0, 0, 1_000, topic_id(source, topic))
        chunks = fetcher._chunks(source, piece, ("value",), 100, lambda: False)
        assert next(chunks)["value"][0].as_py() == b"old-0"
        make_anew(broker, topic)
        in_batches_of_one(broker, topic, "new", 1_000)
        with pytest.raises(error, match="deleted and created again"):
            list(chunks)
        if options:
            assert values(source, piece) == []


def test_records_of_the_old_topic_that_a_kept_consumer_has(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    in_batches_of_one(broker, topic, "old", 1_000)
    source = source_of(broker, topic)
    with KafkaCluster(source) as cluster:
        [piece] = OffsetPlanner(source, cluster).ranges(SourceOffsets({}), SourceOffsets({(topic, 0): 512}))
    assert values(source, piece)[-1] == b"old-511"
    make_anew(broker, topic)
    in_batches_of_one(broker, topic, "new", 1_000)
    with KafkaCluster(source) as cluster:
        [piece] = OffsetPlanner(source, cluster).ranges(
            SourceOffsets({(topic, 0): 512}), SourceOffsets({(topic, 0): 900})
        )
    assert values(source, piece) == [b"new-%d" % at for at in range(512, 900)]


def test_records_that_lie_ahead_are_bounded_in_age(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic()
    fill(broker, topic, "a", 10)
    source = source_of(broker, topic)
    known = OffsetRange(topic, 0, 0, 5, topic_id(source, topic))
    blind = replace(known, topic_id="")
    now = [clock.monotonic()]
    monkeypatch.setattr(consumers.clock, "monotonic", lambda: now[0])
    for piece, kept in ((known, 59.0), (blind, 1.9)):
        with consumers.borrowed_consumer(source, piece) as first:
            pass
        now[0] += kept
        with consumers.borrowed_consumer(source, piece) as second:
            assert second is first
        now[0] += kept + 2.0
        with consumers.borrowed_consumer(source, piece) as third:
            assert third is not first


@pytest.mark.parametrize("lenient", [False, True])
def test_nobody_creates_a_deleted_topic_again(
    broker: KafkaBroker, lenient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_CHECK_SECONDS", 0.5)
    topic = broker.create_topic()
    fill(broker, topic, "a", 10)
    options = {"fetch_timeout_ms": 20_000, "fail_on_data_loss": not lenient}
    source = source_of(broker, topic, **options)
    piece = OffsetRange(topic, 0, 0, 5, topic_id(source, topic))
    assert len(values(source, piece)) == 5
    broker.delete_topic(topic)
    begun = time.monotonic()
    for due in (piece, replace(piece, start=5, until=9)):
        consumers.close_idle_consumers()
        if lenient:
            assert values(source, due) == []
        else:
            with pytest.raises(DataLossError, match="the partition no longer exists"):
                values(source, due)
    assert time.monotonic() - begun < 15
    with KafkaCluster(source) as cluster:
        assert cluster.topics().missing == (topic,)
        assert cluster.earliest([(topic, 0)]) == cluster.latest([(topic, 0)]) == {}
        plan = OffsetPlanner(source, cluster)
        due_offsets = SourceOffsets({(topic, 0): 0}), SourceOffsets({(topic, 0): 5})
        if lenient:
            assert plan.ranges(*due_offsets) == []
        else:
            with pytest.raises(DataLossError, match="the partition no longer exists"):
                plan.ranges(*due_offsets)
    with broker.admin() as admin:
        assert topic not in admin.list_topics()


def test_a_client_that_cannot_be_told_so_is_refused(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(broker, broker.create_topic())
    consumers.close_idle_consumers()

    class Other:
        _client = None

    with pytest.raises(SourceError, match="it cannot be kept from creating topics"):
        topic_now.refuse_topic_creation(Other())
    monkeypatch.setattr(
        consumers, "refuse_topic_creation", lambda _: topic_now.refuse_topic_creation(Other())
    )
    with pytest.raises(SourceError, match=r"kafka-python \S+ is not a version that streamlake reads with"):
        values(source, OffsetRange("t", 0, 0, 1))
