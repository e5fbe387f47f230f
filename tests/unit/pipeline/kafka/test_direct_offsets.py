"""What micro-batches of the direct path read, on a log and a cluster that are dictionaries: handovers and holes."""

from __future__ import annotations

import pytest

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import FencedError, InvalidOptionError, SourceError
from streamlake.pipeline.direct import planned_offsets
from streamlake.pipeline.direct.offset_log import OffsetLog
from streamlake.pipeline.kafka import direct_offsets
from streamlake.pipeline.kafka.direct_offsets import KAFKA_OFFSETS, DirectOffsets
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import SourceOffsets
from tests.helpers.error_catalogue import documented
from tests.helpers.fake_cluster import FakeCluster


class _Path:
    def toString(self) -> str:
        return "checkpoint"


class Log(OffsetLog[SourceOffsets]):
    """`newest`: the last of Spark's log."""

    def __init__(self, ends: dict[int, int], newest: int) -> None:
        self.ends = {number: at(end) for number, end in ends.items()}
        self.newest = newest
        self._location = _Path()
        self._form = KAFKA_OFFSETS

    def last(self) -> SourceOffsets | None:
        return self.ends.get(self.newest)

    def read(self, checkpoint_id: int) -> SourceOffsets | None:
        return self.ends.get(checkpoint_id)

    def add(self, checkpoint_id: int, end: SourceOffsets) -> None:
        if checkpoint_id in self.ends:
            raise FencedError("there is one")
        self.ends[checkpoint_id] = end


def at(offset: int) -> SourceOffsets:
    return SourceOffsets({("t", 0): offset})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster({("t", 0): (0, 1000)})
    cluster.wanted = ("t",)
    monkeypatch.setattr(direct_offsets, "KafkaCluster", lambda source: cluster)
    # Nobody waits: there is always more to read.
    monkeypatch.setattr(planned_offsets, "_Wait", lambda frame, interval_ms: None)
    return cluster


def offsets(log: Log, *, is_bounded: bool = False) -> DirectOffsets:
    source = KafkaSource("h:1", topics=["t"], options={"max-offsets-per-trigger": 100})
    return DirectOffsets(source, log, 0, is_bounded)


def identity(number: int, start: SourceOffsets | None, end: SourceOffsets) -> CheckpointIdentity:
    begin = () if start is None else (start.to_text(),)
    return CheckpointIdentity("p", "job", number, begin, (end.to_text(),))


def position(log: Log, number: int) -> int:
    return log.ends[number].positions[("t", 0)]


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_driver_takes_over_from_where_the_log_is_by_then(cluster: FakeCluster, is_bounded: bool) -> None:
    """Another one was still at it when this one looked first."""
    log = Log({0: 10}, 0)
    mine = offsets(log, is_bounded=is_bounded)
    log.ends |= {1: at(110), 2: at(210), 3: at(300)}
    mine.plan(None, 4)  # type: ignore[arg-type]
    assert position(log, 4) == 400
    mine.plan(None, 5)  # type: ignore[arg-type]
    assert position(log, 5) == 500


def test_a_replay_is_what_the_log_says_and_goes_on_there(cluster: FakeCluster) -> None:
    log = Log({0: 10, 1: 60}, 1)
    mine = offsets(log)
    mine.plan(None, 1)  # type: ignore[arg-type]
    mine.confirm(identity(1, at(10), at(60)))
    assert position(log, 1) == 60
    mine.plan(None, 2)  # type: ignore[arg-type]
    assert position(log, 2) == 160
    assert mine.done == at(60)


def test_a_first_checkpoint_knows_where_it_begins(cluster: FakeCluster) -> None:
    log = Log({}, -1)
    mine = offsets(log)
    mine.plan(None, 0)  # type: ignore[arg-type]
    assert log.ends[0].first == {("t", 0): 0}
    mine.confirm(identity(0, None, log.ends[0]))


def test_a_checkpoint_whose_beginning_nobody_knows(cluster: FakeCluster) -> None:
    log = Log({0: 10}, 0)
    mine = offsets(log)
    with pytest.raises(SourceError, match=r"streamlake/offsets/6 is missing"):
        mine.plan(None, 7)  # type: ignore[arg-type]
    tick = CheckpointIdentity("p", "job", 7, ('{"offset": 7, "timestamp": 1}',), (at(50).to_text(),))
    with pytest.raises(InvalidOptionError, match="another kind of query"):
        mine.frame(None, tick)  # type: ignore[arg-type]


def test_an_entry_that_another_driver_has_written_over(cluster: FakeCluster) -> None:
    """Where the storage cannot refuse the second one."""
    log = Log({0: 10}, 0)
    mine = offsets(log)
    mine.plan(None, 1)  # type: ignore[arg-type]
    with pytest.raises(FencedError, match="another entry for checkpoint 1") as raised:
        mine.confirm(identity(1, at(10), at(112)))
    documented("fenced-error", raised.value)
    with pytest.raises(FencedError):
        mine.confirm(identity(1, at(12), log.ends[1]))
