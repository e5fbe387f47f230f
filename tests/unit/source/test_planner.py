"""The planner against a cluster that is a dictionary: starting offsets, limits, new partitions, data loss."""

from __future__ import annotations

import pytest
from kafka.errors import KafkaTimeoutError

from streamlake.errors import DataLossError, SourceError
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offset_cursor import OffsetCursor
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner
from streamlake.wording import named_error
from tests.helpers.fake_cluster import FakeCluster


def planner(cluster, **options):
    named = {key.replace("_", "-"): value for key, value in options.items()}
    source = KafkaSource("h:1", topics=["t"], options={"partition-discovery-interval-ms": 0, **named})
    cluster.wanted = source.topics
    return OffsetPlanner(source, cluster)


def test_starting_offsets():
    logs = {("t", 0): (3, 10), ("t", 1): (0, 5)}
    assert planner(FakeCluster(logs)).initial().positions == {("t", 0): 3, ("t", 1): 0}
    assert planner(FakeCluster(logs), starting_offsets="latest").initial().positions == {
        ("t", 0): 10,
        ("t", 1): 5,
    }
    by_time = planner(FakeCluster(logs), starting_offsets="timestamp", starting_timestamp=7)
    assert by_time.initial().positions == {("t", 0): 7, ("t", 1): 5}
    explicit = planner(FakeCluster(logs), starting_offsets={"t": {"0": 4, "1": -1}})
    assert explicit.initial().positions == {("t", 0): 4, ("t", 1): 5}


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ({"t": {"0": 4}}, "leaves out t-1"),
        ({"t": {"0": 4, "1": 0, "2": 0}}, "does not have: t-2"),
        ({"t": {"0": 2, "1": 0}}, "offset 2 of t-0 does not exist; available are 3 to 10"),
        ({"t": {"0": 11, "1": 0}}, "offset 11 of t-0"),
    ],
)
def test_explicit_offsets_must_fit(offsets, problem):
    cluster = FakeCluster({("t", 0): (3, 10), ("t", 1): (0, 5)})
    with pytest.raises(SourceError, match=problem):
        planner(cluster, starting_offsets=offsets).initial()


def test_a_missing_topic_is_named():
    with pytest.raises(SourceError, match="has no topic t"):
        planner(FakeCluster({})).initial()


def test_a_limit_moves_in_steps_and_then_stays():
    cluster = FakeCluster({("t", 0): (0, 10), ("t", 1): (0, 30)})
    cursor = OffsetCursor(planner(cluster, max_offsets_per_trigger=20))
    start = cursor.initial()
    first, second, third = cursor.latest(), cursor.latest(), cursor.latest()
    assert first.positions == {("t", 0): 5, ("t", 1): 15}
    assert second.positions == {("t", 0): 10, ("t", 1): 30}
    assert third.to_text() == second.to_text()
    assert cursor.ranges(start, first) == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 15)]
    assert cursor.ranges(first, second) == [OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 15, 30)]


def test_an_idle_cursor_asks_the_broker_rarely():
    cluster = FakeCluster({("t", 0): (0, 10)})
    cursor = OffsetCursor(planner(cluster))
    cursor.initial()
    cursor.latest()
    cursor.latest()
    asked = cluster.questions
    for _ in range(50):
        cursor.latest()
    assert cluster.questions - asked <= 1


def test_a_target_is_never_passed():
    cluster = FakeCluster({("t", 0): (0, 10)})
    plan = planner(cluster, max_offsets_per_trigger=8)
    start = plan.initial()
    cursor = OffsetCursor(plan, start=start, target=plan.latest(start))
    cluster.logs["t", 0] = (0, 1_000)
    assert [cursor.latest().positions["t", 0] for _ in range(3)] == [8, 10, 10]


def test_a_restart_goes_on_from_the_known_offset():
    cluster = FakeCluster({("t", 0): (0, 100)})
    known = SourceOffsets({("t", 0): 40})
    cursor = OffsetCursor(planner(cluster, max_offsets_per_trigger=10), known=known)
    assert cursor.latest().positions == {("t", 0): 50}


def test_a_restart_goes_on_from_what_spark_asks_for_first():
    cluster = FakeCluster({("t", 0): (0, 100), ("t", 1): (4, 9)})
    cursor = OffsetCursor(planner(cluster, max_offsets_per_trigger=10))
    known = SourceOffsets({("t", 0): 99})
    assert cursor.ranges(known, known) == []
    end = cursor.latest()
    assert cursor.ranges(known, end) == [OffsetRange("t", 0, 99, 100), OffsetRange("t", 1, 4, 9)]


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_a_replay_of_the_first_micro_batch_starts_where_it_started(mode):
    cluster = FakeCluster({("t", 0): (10, 20)})
    first = OffsetCursor(planner(cluster, starting_offsets=mode, max_offsets_per_trigger=4))
    end = first.latest()
    due = first.ranges(first.initial(), end)
    cluster.logs["t", 0] = (10, 90)
    again = OffsetCursor(planner(cluster, starting_offsets=mode, max_offsets_per_trigger=4))
    logged = SourceOffsets.from_json(end.to_json())
    assert again.ranges(logged, logged) == []
    assert again.ranges(again.initial(), logged) == due
    start = {"earliest": 14, "latest": 20}[mode]
    assert again.ranges(logged, again.latest()) == [OffsetRange("t", 0, start, start + 4)]
    if mode == "earliest":
        cluster.logs["t", 0] = (12, 90)
        with pytest.raises(DataLossError, match="offsets 10 to 11"):
            again.ranges(again.initial(), logged)


def test_new_partitions_start_at_their_earliest_offset():
    cluster = FakeCluster({("t", 0): (0, 10)})
    plan = planner(cluster)
    start = plan.latest(plan.initial())
    cluster.logs["t", 1] = (4, 9)
    end = plan.up_to(start, plan.latest(start))
    assert plan.ranges(start, end) == [OffsetRange("t", 1, 4, 9)]
    # A replay plans the same, whatever has happened since.
    cluster.logs["t", 1] = (4, 500)
    restored = SourceOffsets.from_json(end.to_json())
    assert plan.ranges(SourceOffsets.from_json(start.to_json()), restored) == [OffsetRange("t", 1, 4, 9)]


def test_a_new_partition_under_a_limit_goes_on_where_it_was_cut():
    cluster = FakeCluster({("t", 0): (0, 0)})
    plan = planner(cluster, max_offsets_per_trigger=3)
    start = plan.initial()
    cluster.logs["t", 1] = (4, 9)
    first = plan.up_to(start, plan.latest(start))
    second = plan.up_to(first, plan.latest(first))
    assert plan.ranges(start, first) == [OffsetRange("t", 1, 4, 7)]
    assert plan.ranges(first, second) == [OffsetRange("t", 1, 7, 9)]


KNOWN = SourceOffsets({("t", 0): 10, ("t", 1): 5}, {}, {"t": "one"})
LOSSES = [
    pytest.param({("t", 0): (0, 8), ("t", 1): (0, 5)}, "one", "ends at offset 8, before", id="log cut"),
    pytest.param({("t", 0): (0, 99), ("t", 1): (0, 99)}, "two", "created again", id="topic made anew"),
    pytest.param(
        {("t", 0): (0, 99)}, "one", "t-1, read up to offset 5, no longer exists", id="partition gone"
    ),
    pytest.param({}, "one", "no longer exists", id="topic gone"),
]


@pytest.mark.parametrize(("logs", "topic_id", "problem"), LOSSES)
def test_loss_is_an_error_that_names_the_ways_out(logs, topic_id, problem):
    with pytest.raises(DataLossError, match=problem) as raised:
        planner(FakeCluster(logs, {"t": topic_id})).latest(KNOWN)
    assert "fail-on-data-loss=false" in str(raised.value)


@pytest.mark.parametrize(("logs", "topic_id", "problem"), LOSSES)
def test_loss_is_found_without_a_known_offset_too(logs, topic_id, problem):
    plan = planner(FakeCluster(logs, {"t": topic_id}))
    if not logs:
        return  # without a topic there is no end offset to begin with
    with pytest.raises(DataLossError, match=problem):
        plan.ranges(KNOWN, plan.latest(None))


def test_ignored_loss_of_a_log_end_reads_what_is_there():
    plan = planner(FakeCluster({("t", 0): (2, 8), ("t", 1): (0, 7)}, {"t": "one"}), fail_on_data_loss="false")
    end = plan.up_to(KNOWN, plan.latest(KNOWN))
    assert plan.ranges(KNOWN, end) == [OffsetRange("t", 0, 2, 8), OffsetRange("t", 1, 5, 7)]
    assert plan.up_to(end, plan.latest(end)).to_text() == end.to_text()


def test_ignored_loss_of_a_topic_reads_the_new_one_from_its_start():
    plan = planner(
        FakeCluster({("t", 0): (0, 99)}, {"t": "two"}), fail_on_data_loss=False, max_offsets_per_trigger=60
    )
    first = plan.up_to(KNOWN, plan.latest(KNOWN))
    second = plan.up_to(first, plan.latest(first))
    assert plan.ranges(KNOWN, first) == [OffsetRange("t", 0, 0, 60)]
    assert plan.ranges(first, second) == [OffsetRange("t", 0, 60, 99)]
    assert second.topic_ids == {"t": "two"}
    assert ("t", 1) not in second.positions


def test_ignored_loss_of_a_partition_goes_on_with_the_others():
    plan = planner(FakeCluster({("t", 0): (0, 12)}, {"t": "one"}), fail_on_data_loss=False)
    end = plan.up_to(KNOWN, plan.latest(KNOWN))
    assert plan.ranges(KNOWN, end) == [OffsetRange("t", 0, 10, 12)]


def test_records_removed_by_retention():
    cluster = FakeCluster({("t", 0): (15, 30), ("t", 1): (0, 5)}, {"t": "one"})
    plan = planner(cluster)
    with pytest.raises(DataLossError, match="offsets 10 to 14 are no longer in Kafka"):
        plan.ranges(KNOWN, plan.latest(KNOWN))
    lenient = planner(cluster, fail_on_data_loss=False)
    assert lenient.ranges(KNOWN, lenient.latest(KNOWN)) == [OffsetRange("t", 0, 15, 30)]


def test_a_range_that_is_gone_as_a_whole():
    cluster = FakeCluster({("t", 0): (50, 60), ("t", 1): (0, 5)}, {"t": "one"})
    end = SourceOffsets({("t", 0): 30, ("t", 1): 5}, {}, {"t": "one"})
    with pytest.raises(DataLossError, match="offsets 10 to 29"):
        planner(cluster).ranges(KNOWN, end)
    assert planner(cluster, fail_on_data_loss=False).ranges(KNOWN, end) == []


def test_a_directory_that_has_read_other_topics_only_is_taken_for_another_streams():
    cluster = FakeCluster({("t", 0): (0, 10)})
    known = SourceOffsets({("accounts", 0): 13})
    with pytest.raises(DataLossError) as refused:
        planner(cluster).latest(known)
    assert str(refused.value) == (
        "the checkpoint directory has read accounts, and none of the topics that this stream reads (t): it is the "
        "directory of another stream, or the topics have other names now. Correct the location of the checkpoint "
        "directory (`checkpoint:` in a pipeline file), or the topics"
    )
    end = planner(cluster, fail_on_data_loss=False).latest(known)
    assert end.positions == {("accounts", 0): 13, ("t", 0): 10}


def test_the_topic_nearest_to_a_missing_one_is_suggested():
    cluster = FakeCluster({("orders", 0): (0, 10), ("accounts", 0): (0, 10)})
    plan = planner(cluster)
    cluster.wanted = ("ordres", "zzz")
    with pytest.raises(SourceError, match=r"create it or correct the name; did you mean 'orders'\?$"):
        plan.initial()


def test_the_kind_of_a_librarys_error_is_named_once():
    assert named_error(KafkaTimeoutError("no answer")) == "KafkaTimeoutError: no answer"
    assert named_error(OSError("no answer")) == "OSError: no answer"
