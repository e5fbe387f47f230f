"""Storage that fails at every single call of a stream's checkpoints: the next driver finishes, and the table is right.

One run per call: the stream is brought up anew, its n-th call of the storage goes wrong, whoever is in the middle of a
checkpoint dies of it, and a successor recovers what was staged and goes on.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog import hadoop_operations
from streamlake.catalog.open import open_table
from tests.helpers.batch_write import append
from tests.helpers.faulty_io import FAIL, HALF, LATE, LOST, WRITING, Fault
from tests.helpers.invariants import check_table
from tests.helpers.mortal_stream import CHECKPOINTS, MODES, check, model, stream


def test_the_stream_without_a_fault(tmp_path: Path) -> None:
    outcome = stream(tmp_path / "t", "position/3", ())
    check(tmp_path / "t")
    assert outcome.deaths == 0
    assert {name for name, _ in outcome.calls} >= {*WRITING, "read_bytes", "delete"}


@pytest.mark.parametrize("how", [FAIL, HALF, LOST])
@pytest.mark.parametrize("mode", MODES)
def test_every_call_that_writes_goes_wrong_once(mode: str, how: str, tmp_path: Path) -> None:
    deaths = 0
    for operation in WRITING:
        for nth in itertools.count(1):
            location = tmp_path / f"{operation}-{nth}"
            outcome = stream(location, mode, [Fault(operation, nth=nth, how=how)])
            check(location)
            deaths += outcome.deaths
            if sum(name == operation for name, _ in outcome.calls) < nth:
                break
    assert deaths >= CHECKPOINTS, "what cannot be tried again here, costs the driver"


@pytest.mark.parametrize("operation", ["read_bytes", "list_prefix", "exists", "delete"])
def test_every_call_that_does_not_write_goes_wrong_once(operation: str, tmp_path: Path) -> None:
    for nth in itertools.count(1):
        location = tmp_path / str(nth)
        outcome = stream(location, "position/3", [Fault(operation, nth=nth)])
        check(location)
        if sum(name == operation for name, _ in outcome.calls) < nth:
            break
    assert nth > 1, "it is called"


@pytest.mark.parametrize("mode", MODES)
def test_a_storage_that_deletes_nothing_costs_nothing_but_space(mode: str, tmp_path: Path) -> None:
    outcome = stream(tmp_path / "t", mode, [Fault("delete", "*/metadata/snap-*", nth=0)])
    check(tmp_path / "t")
    assert outcome.deaths == 0


@pytest.mark.parametrize("path", ["*/data/*", "*/_index/*.run", "*-m?.avro", "*/snap-*", "*/_index/*.json"])
def test_half_a_file_is_never_part_of_the_table(path: str, tmp_path: Path) -> None:
    """Data files, index runs, manifests, manifest lists and index states that are cut short, each in its turn."""
    for nth in itertools.count(1):
        location = tmp_path / str(nth)
        faults = [Fault(name, path, nth=nth, how=HALF) for name in ("open_output", "write_bytes")]
        outcome = stream(location, "position/3", faults)
        check(location)
        if sum(fnmatch.fnmatch(each, path) for name, each in outcome.calls if name in WRITING) < nth:
            break
    assert nth > CHECKPOINTS


def test_others_commit_while_the_versions_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list, or a look at whether a version is there, that takes so long that another writer commits meanwhile; on
    another machine, where nobody waits for our turn to end."""
    monkeypatch.setattr(hadoop_operations, "commit_turn", lambda _: nullcontext())
    for operation, nth in itertools.product(("exists", "list_prefix", "create_exclusive"), (1, 2, 3)):
        location = tmp_path / f"{operation}-{nth}"
        meanwhile = _appending(location, 1000 + nth)
        outcome = stream(location, "position/3", [Fault(operation, nth=nth, how=LATE, meanwhile=meanwhile)])
        met = sum(name == operation for name, _ in outcome.calls) >= nth
        table = open_table(str(location))
        check_table(table, files_exist=True)
        assert len(table.snapshots) == CHECKPOINTS + met
        found = load_table(str(location)).scan().to_arrow()
        expected = model() | ({1000 + nth: "foreign"} if met else {})
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected


def _appending(location: Path, key: int) -> Callable[[], None]:
    rows = pa.table({"id": pa.array([key], pa.int64()), "v": ["foreign"]})
    return lambda: append(open_table(str(location)), rows) and None
