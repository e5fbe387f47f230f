"""A recovery that undoes a replay of rejected records: each record is in the table or in the rejects, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.cli.main import main
from streamlake.operate.replay.replay import Replayed, ReplayedTable, replay
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.metadata_update import commit_metadata
from tests.helpers.invariants import check_table
from tests.helpers.local_rejects import TOPIC, RejectingStream, rejected_rows_of
from tests.helpers.tables import make_table

FAR, FARTHER = 3_000_000_000, 4_000_000_000
BATCHES = ([{"id": 1}, {"id": FAR}], [{"id": 2}], [{"id": 3}, {"id": FARTHER}], [{"id": 4}])


@pytest.fixture
def location(tmp_path: Path) -> Path:
    make_table(tmp_path / "t", "id long")
    return tmp_path / "t"


def stream(location: Path) -> RejectingStream:
    return RejectingStream(location, BATCHES, "id int", directory=location.parent / "checkpoint")


def replayed(location: Path) -> Replayed:
    source = KafkaSource("h:1", TOPIC, schema="id long")
    return replay(ReplayedTable(str(location), source, pipeline="p"))


def recover(location: Path, *more: str) -> int:
    directory = str(location.parent / "checkpoint")
    with pytest.raises(SystemExit) as ended:
        main(["recover", str(location), "--pipeline", "p", "--checkpoint-location", directory, *more])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def ids(location: Path) -> list[int]:
    return sorted(load_table(str(location)).scan().to_arrow()["id"].to_pylist())


def places(location: Path) -> list[int]:
    return sorted(row["offset"] for row in rejected_rows_of(location))


def written(location: Path) -> None:
    """Four checkpoints, and two replays between them."""
    running = stream(location)
    running.checkpoint(0)
    assert replayed(location).records == 1
    running.checkpoint(1)
    running.checkpoint(2)
    assert replayed(location).records == 1
    running.checkpoint(3)
    assert (ids(location), places(location)) == ([1, 2, 3, 4, FAR, FARTHER], [])


@pytest.mark.parametrize("to", [0, 1, 2])
@pytest.mark.parametrize("twice", [False, True])
def test_records_of_a_replay_that_is_undone(
    location: Path, capsys: pytest.CaptureFixture[str], to: int, twice: bool
) -> None:
    written(location)
    assert recover(location, "--rewind-to", str(to)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    # What was rejected in checkpoint 2 comes again from the source; what was rejected before does not.
    assert ("put 1 records back into" in shown) == (to in (0, 2))
    for _ in range(1 + twice):
        assert recover(location, "--rewind-to", str(to), "--yes") == 0
    assert places(location) == {0: [1], 1: [], 2: [4]}[to]
    assert ids(location) == {0: [1], 1: [1, 2, FAR], 2: [1, 2, 3, FAR]}[to]
    again = stream(location)
    for number in range(to + 1, 4):
        again.checkpoint(number)
    assert replayed(location).records == {0: 2, 1: 1, 2: 1}[to]
    assert (ids(location), places(location)) == ([1, 2, 3, 4, FAR, FARTHER], [])
    for table in (open_table(str(location)), open_rejects(str(location))):
        assert table is not None
        check_table(table, files_exist=True)


def test_records_that_cannot_be_put_back_are_named(
    location: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(location)
    rejects = open_rejects(str(location))
    assert rejects is not None
    undone = [
        each.snapshot_id
        for each in open_table(str(location)).snapshots
        if each.summary["streamlake.job-id"].startswith("replay-")
    ]
    kept = rejects.metadata.current_snapshot_id
    expire(
        str(location) + "__rejects",
        [each.snapshot_id for each in rejects.snapshots if each.snapshot_id != kept],
    )
    assert recover(location, "--rewind-to", "0") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nothing shows their records any more" in shown
    assert all(str(snapshot_id) in shown for snapshot_id in undone)


def expire(location: str, snapshot_ids: list[int]) -> None:
    def change(base: TableMetadata) -> TableMetadata:
        kept = tuple(each for each in base.snapshots if each.snapshot_id not in snapshot_ids)
        return changed(base, snapshots=kept)

    commit_metadata(open_table(location), change)
