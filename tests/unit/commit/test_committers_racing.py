"""Several committers at once on one table: of different jobs, and of one job that was started twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.errors import FencedError
from streamlake.ids import new_uuid
from tests.helpers.invariants import check_table
from tests.helpers.tables import data_file, make_table

CHECKPOINTS = 10


def run_job(location: str, job: str) -> list[Outcome]:
    """Commit the job's checkpoints in order, as a driver of its own; ends where it is fenced."""
    table = open_table(location)
    committer = Committer(table, "main")
    outcomes = []
    for number in range(CHECKPOINTS):
        who = CheckpointIdentity(f"p-{job}", job, number, (f"{number}",), (f"{number + 1}",))
        try:
            held = committer.receipt_if_committed(who)
        except FencedError:
            break
        if held is not None:
            outcomes.append(held.outcome)
            continue
        manifests = write_delta_manifests(
            table.io, table.locations, table.metadata, [data_file(table, records=5)], new_uuid()
        )
        staged = Committable(who, table.uuid, "main", "append", manifests, 5, 1, 1000)
        try:
            outcomes.append(committer.commit(staged).outcome)
        except FencedError:
            break
    return outcomes


def test_sinks_of_one_driver_share_a_table(tmp_path: Path) -> None:
    make_table(tmp_path, properties={"commit.retry.num-retries": "50"})
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda job: run_job(str(tmp_path), f"job-{job}"), range(4)))
    assert outcomes == [[Outcome.COMMITTED] * CHECKPOINTS] * 4
    table = open_table(str(tmp_path))
    assert len(table.snapshots) == 4 * CHECKPOINTS
    check_table(table)


def test_drivers_of_one_checkpoint_directory_commit_each_checkpoint_once(tmp_path: Path) -> None:
    make_table(tmp_path, properties={"commit.retry.num-retries": "50"})
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda _: run_job(str(tmp_path), "job"), range(3)))
    table = open_table(str(tmp_path))
    held = Counter(snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots)
    assert held == Counter(str(number) for number in range(CHECKPOINTS))
    assert sum(run.count(Outcome.COMMITTED) for run in outcomes) == CHECKPOINTS
    check_table(table)
