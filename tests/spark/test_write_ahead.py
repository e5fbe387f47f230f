"""Writing ahead of the commits under a real query: Spark goes on, the end waits, errors and stops lose nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamlake.catalog.open import open_table
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError, StorageError
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.landing import Landing
from tests.helpers.processes import wait_until

FILES = 6


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    landing = Landing(spark, tmp_path)
    for _ in range(FILES):
        landing.land(20)
    return landing


def spark_commits(landing: Landing) -> int:
    return sum(path.name.isdigit() for path in Path(landing.checkpoint, "commits").glob("*"))


def commit_through(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
    """`before` is called with the checkpoint id ahead of every commit."""
    commit = Committer.commit

    def commit_later(self: Committer, committable: Any, *more: Any) -> CommitReceipt:
        before(committable.identity.checkpoint_id)
        return commit(self, committable, *more)

    monkeypatch.setattr(Committer, "commit", commit_later)


def test_a_slow_catalog_holds_nobody_up_until_three_are_pending(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[int] = []

    def slow(checkpoint_id: int) -> None:
        """Until the third one is staged, too; and then a moment in which Spark must not go on."""
        most = min(checkpoint_id + 2, FILES)
        wait_until(lambda: spark_commits(landing) >= most, 60, f"{most} checkpoints to be done for Spark")
        time.sleep(0.3)
        ahead.append(spark_commits(landing) - checkpoint_id)

    commit_through(monkeypatch, slow)
    told: list[int] = []
    sink = landing.sink(
        max_pending_checkpoints=3, on_commit=lambda receipt: told.append(receipt.checkpoint_id)
    )
    landing.run(sink)
    assert told == [receipt.checkpoint_id for receipt in sink.receipts] == list(range(FILES))
    assert ahead == [2] * (FILES - 1) + [1], (
        "one is being committed, one is done for Spark, the third is staged"
    )
    assert landing.ids() == list(range(landing.rows))
    table = open_table(landing.location)
    check_table(table, files_exist=True)
    assert len(table.snapshots) == FILES


def test_an_error_reaches_the_query_and_the_next_start_commits_first(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(checkpoint_id: int) -> None:
        if checkpoint_id >= 1:
            raise StorageError("the catalog is away")

    properties = {"commit.retry.num-retries": "1", "commit.max-pending-checkpoints": "3"}
    sink = landing.sink(properties=properties)
    with monkeypatch.context() as patched:
        commit_through(patched, away)
        with pytest.raises(StorageError, match=r"the catalog is away\. checkpoint 1 .* is staged"):
            landing.run(sink)
    assert isinstance(sink.error, StorageError)
    assert len(open_table(landing.location).snapshots) == 1
    finished = spark_commits(landing)
    assert 2 <= finished <= 4
    again = landing.sink()
    landing.run(again)
    assert landing.ids() == list(range(landing.rows))
    assert again.receipts[0].outcome in (Outcome.RECOVERED, Outcome.COMMITTED)
    check_table(open_table(landing.location), files_exist=True)


def test_a_stop_waits_for_no_outage_and_loses_nothing(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(checkpoint_id: int) -> None:
        if checkpoint_id >= 1:
            raise StorageError("the catalog is away")

    properties = {"commit.retry.num-retries": "1000", "commit.retry.min-wait-ms": "20000"}
    with monkeypatch.context() as patched:
        commit_through(patched, away)
        sink = landing.sink(properties=properties, max_pending_checkpoints=3)
        query = sink.start(
            landing.frame(),
            checkpoint_location=landing.checkpoint,
            trigger={"processingTime": "0 seconds"},
        )
        wait_until(lambda: spark_commits(landing) >= 3, 60, "three checkpoints to be done for Spark")
        started = time.monotonic()
        query.stop()
        assert time.monotonic() - started < 15
        assert query.awaitTermination() is None
        assert query.exception() is None
        assert sink.error is None
    landing.run(landing.sink())
    assert landing.ids() == list(range(landing.rows))
    check_table(open_table(landing.location), files_exist=True)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_is_staged_is_committed_by_a_start_that_finds_no_record(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def away(checkpoint_id: int) -> None:
        if checkpoint_id >= FILES - 2:
            raise StorageError("the catalog is away")

    settings: dict[str, Any] = {"mode": mode, "max_pending_checkpoints": 3}
    if mode == "upsert":
        settings |= {"key": ["id"], "delete_mode": "equality"}
    properties = {"commit.retry.num-retries": "1000", "commit.retry.min-wait-ms": "20000"}
    with monkeypatch.context() as patched:
        commit_through(patched, away)
        query = landing.sink(properties=properties, **settings).start(
            landing.frame(),
            checkpoint_location=landing.checkpoint,
            trigger={"processingTime": "0 seconds"},
        )
        wait_until(lambda: spark_commits(landing) == FILES, 120, "all checkpoints to be done for Spark")
        query.stop()
        update = UpdateProperties(open_table(landing.location))
        update.set("commit.retry.num-retries", "1").set("commit.retry.min-wait-ms", "10").commit()
        with pytest.raises(StorageError, match=r"is away\. checkpoint 4 .* is staged, nothing of it is lost"):
            landing.run(landing.sink(**settings))
    assert landing.ids() == list(range(20 * (FILES - 2)))
    landing.run(landing.sink(**settings))
    assert landing.ids() == list(range(landing.rows))
    assert spark_commits(landing) == FILES, "no empty micro-batch"
    landing.land(20)
    landing.run(landing.sink(**settings))
    assert landing.ids() == list(range(landing.rows))
    table = open_table(landing.location)
    check_table(table, files_exist=True)
    assert len(table.snapshots) == FILES + 1


def test_upserts_by_position_are_refused(landing: Landing) -> None:
    properties = {"commit.max-pending-checkpoints": "2"}
    sink = landing.sink(mode="upsert", key=["id"], properties=properties)
    with pytest.raises(InvalidOptionError, match=r"commit\.max-pending-checkpoints is 2.*'position'"):
        landing.run(sink)
