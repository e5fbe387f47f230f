"""Real processes that commit to one table at the same time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlake.catalog.open import create, open_table
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.tables import make_table, metadata_files

Start = Callable[..., subprocess.Popen[str]]

ONE_SWAP = """
import sys, time
from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.errors import CommitConflictError
from streamlake.storage.local import LocalFileIO
from streamlake.table.updates.metadata_changes import with_properties

location, me = sys.argv[1:]
operations = HadoopTableOperations(location, LocalFileIO())
operations.refresh()
print("ready", flush=True)
for line in sys.stdin:
    base = operations.refresh()
    print("seen", flush=True)
    at = float(sys.stdin.readline())
    while time.time() < at:
        pass
    try:
        operations.commit(base, with_properties(base, {"winner": me, "round": str(at)}))
        print("won", flush=True)
    except CommitConflictError:
        print("lost", flush=True)
"""

APPENDS = """
import sys
from streamlake.catalog.open import open_table
from streamlake.table.producers.append_files import AppendFiles
from tests.helpers.tables import data_file

location, me, times = sys.argv[1:]
table = open_table(location)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(times)):
    AppendFiles(table).append_file(data_file(table, records=1, name=f"{me}-{number}")).commit()
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes that run a script; none outlives the test."""
    started = []

    def run(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def tell(process: subprocess.Popen[str], line: object) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=60)
    return process.returncode


def test_of_two_processes_that_race_for_a_version_exactly_one_wins(tmp_path: Path, start: Start) -> None:
    make_table(tmp_path)
    racers = [start(ONE_SWAP, tmp_path, name) for name in ("a", "b")]
    assert [hear(racer) for racer in racers] == ["ready", "ready"]
    outcomes: Counter[tuple[str, ...]] = Counter()
    for number in range(30):
        for racer in racers:
            tell(racer, "refresh")
        assert [hear(racer) for racer in racers] == ["seen", "seen"]
        at = time.time() + 0.01
        for racer in racers:
            tell(racer, at)
        told = [hear(racer) for racer in racers]
        outcomes[tuple(sorted(told))] += 1
        table = open_table(str(tmp_path))
        assert table.properties["winner"] == ("a", "b")[told.index("won")]
        assert (tmp_path / "metadata" / f"v{number + 2}.metadata.json").exists()
    assert outcomes == {("lost", "won"): 30}
    assert [finish(racer) for racer in racers] == [0, 0]


def test_four_processes_append_fifty_times_each(tmp_path: Path, start: Start) -> None:
    create(str(tmp_path / "t"), parse_ddl("id long, category string"))
    writers = [start(APPENDS, tmp_path / "t", name, 50) for name in range(4)]
    assert [hear(writer) for writer in writers] == ["ready"] * 4
    for writer in writers:
        tell(writer, "go")
    assert [finish(writer) for writer in writers] == [0] * 4
    table = open_table(str(tmp_path / "t"))
    check_table(table)
    assert len(table.snapshots) == 200
    assert len(list(table.metadata.ancestors(table.metadata.current_snapshot_id))) == 200
    expected = {f"{writer}-{number}" for writer in range(4) for number in range(50)}
    assert sorted(Path(file.file_path).stem for file in live_data_files(table)) == sorted(expected)
    referenced = {
        Path(part.manifest_path).name for snapshot in table.snapshots for part in table.manifests(snapshot)
    } | {Path(snapshot.manifest_list or "").name for snapshot in table.snapshots}
    assert {name for name in metadata_files(table) if name.endswith(".avro")} == referenced, (
        "no orphan is left"
    )
