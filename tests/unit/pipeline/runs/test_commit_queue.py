"""Commits that run behind: in order, bounded, and with their errors told to whoever writes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError, StorageError
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.runs.commit_queue import MAX_PENDING, CommitQueue, queue_limit
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError


def work(number: int, gate: threading.Event | None = None) -> Callable[[], CommitReceipt]:
    def commit() -> CommitReceipt:
        if gate is not None:
            assert gate.wait(20)
        return CommitReceipt("job", number, Outcome.COMMITTED, number)

    return commit


def failing() -> CommitReceipt:
    raise StorageError("the catalog is away")


def in_thread(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_commits_happen_in_order_and_one_at_a_time() -> None:
    told: list[int] = []
    busy = threading.Lock()

    def commit(number: int) -> CommitReceipt:
        assert busy.acquire(blocking=False), "two commits at once"
        time.sleep(0.001)
        busy.release()
        return CommitReceipt("job", number, Outcome.COMMITTED, number)

    queue = CommitQueue(4, lambda receipt: told.append(receipt.checkpoint_id))
    for number in range(50):
        queue.put(lambda number=number: commit(number))
        assert queue.pending < 4
    assert queue.drain() is None
    assert told == list(range(50))


def test_whoever_would_add_one_more_than_may_be_pending_waits() -> None:
    gate = threading.Event()
    told: list[int] = []
    queue = CommitQueue(3, lambda receipt: told.append(receipt.checkpoint_id))
    queue.put(work(0, gate))
    queue.put(work(1))
    writer = in_thread(lambda: queue.put(work(2)))
    writer.join(0.2)
    assert writer.is_alive(), "three were pending, and the writer went on"
    assert queue.pending == 3
    gate.set()
    writer.join(20)
    assert not writer.is_alive()
    assert queue.drain() is None
    assert told == [0, 1, 2]


def test_an_error_ends_the_commits_and_is_told_to_the_next_writer_and_at_the_end() -> None:
    told: list[int] = []
    gate = threading.Event()
    queue = CommitQueue(5, lambda receipt: told.append(receipt.checkpoint_id))
    queue.put(work(0, gate))
    queue.put(failing)
    queue.put(work(2))
    gate.set()
    error = queue.drain()
    assert isinstance(error, StorageError)
    assert told == [0], "nothing is committed past a checkpoint that is not"
    assert queue.pending == 2
    for call in (queue.check, lambda: queue.put(work(3))):
        with pytest.raises(StorageError, match="away"):
            call()
    assert queue.drain() is error


def test_an_error_wakes_a_writer_that_waits() -> None:
    raised: list[BaseException] = []
    gate = threading.Event()

    def fail_late() -> CommitReceipt:
        assert gate.wait(20)
        return failing()

    def put() -> None:
        try:
            queue.put(work(1))
        except StorageError as error:
            raised.append(error)

    queue = CommitQueue(2, lambda receipt: None)
    queue.put(fail_late)
    writer = in_thread(put)
    writer.join(0.1)
    assert writer.is_alive()
    gate.set()
    writer.join(20)
    assert len(raised) == 1


def test_a_query_that_is_stopped_does_not_wait_for_room() -> None:
    raised: list[BaseException] = []
    gate = threading.Event()

    def put() -> None:
        try:
            queue.put(work(1))
        except MicroBatchInterruptedError as error:
            raised.append(error)

    queue = CommitQueue(2, lambda receipt: None)
    queue.put(work(0, gate))
    writer = in_thread(put)
    writer.join(0.1)
    queue.interrupt()
    writer.join(20)
    assert "java.lang.InterruptedException" in str(raised[0])
    gate.set()
    assert queue.drain() is None
    assert queue.pending == 0, "what was staged is committed all the same"


def test_the_limit_is_the_argument_else_the_property_else_one() -> None:
    assert queue_limit(None, {}, None) == 1
    assert queue_limit(None, {MAX_PENDING: "4"}, None) == 4
    assert queue_limit(2, {MAX_PENDING: "4"}, "equality") == 2
    assert queue_limit(1, {MAX_PENDING: "4"}, "position") == 1
    with pytest.raises(InvalidOptionError, match=r"commit\.max-pending-checkpoints"):
        queue_limit(None, {MAX_PENDING: "0"}, None)


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write", None])
def test_checkpoints_that_need_each_other_cannot_be_pending_together(delete_mode: str | None) -> None:
    with pytest.raises(InvalidOptionError, match="delete_mode 'equality'"):
        IcebergSink("/t", mode="upsert", key=["id"], delete_mode=delete_mode, max_pending_checkpoints=2)
    assert IcebergSink("/t", mode="upsert", delete_mode="equality", max_pending_checkpoints=2)
    with pytest.raises(InvalidOptionError, match="max_pending_checkpoints is 0"):
        IcebergSink("/t", max_pending_checkpoints=0)


def test_a_pipeline_file_says_how_many() -> None:
    text = "source: {rate: {}}\nsink: {table: /t, max-pending-checkpoints: 3}\ncheckpoint: /c\n"
    assert parse_pipeline(text, "p.yaml", {}).sink.arguments == {"max_pending_checkpoints": 3}
    with pytest.raises(InvalidOptionError, match="max-pending-checkpoints"):
        parse_pipeline(text.replace("max-pending", "max-pendign"), "p.yaml", {})
