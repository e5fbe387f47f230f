"""Every message of the error catalogue is one that the code has: a test produces it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.cli.commands.demo import _Story
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    ConflictValidationError,
    DataInvalidError,
    IndexDamagedError,
    InvalidOptionError,
    MissingFileError,
    SchemaMismatchError,
    SourceError,
    StorageError,
    StreamlakeError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.operate.recover.recovery import Recovery
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.key_index.key_lineage import require_same_index
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.source.cluster import KafkaCluster
from streamlake.source.kafka_source import KafkaSource
from streamlake.storage.file_info import storage_error
from streamlake.storage.local import LocalFileIO
from streamlake.table.options import RetryOptions
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.retries import retry_on_conflict
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tasks.record_screen import too_many_rejects
from tests.helpers.batch_write import append
from tests.helpers.error_catalogue import documented
from tests.helpers.local_stream import LocalStream
from tests.helpers.processes import free_ports
from tests.helpers.tables import FAST_CHECKS

TESTS = Path(__file__).parents[1]
PAGES = TESTS.parent / "docs" / "operating" / "errors"
ONCE = RetryOptions(0, 1, 1, 1_000)
IDENTITY = CheckpointIdentity("orders", "5f0c", 41)


@pytest.fixture
def location(tmp_path: Path) -> str:
    path = str(tmp_path / "orders")
    create_table(path, "id long, customer string", properties=FAST_CHECKS)
    return path


def test_every_page_has_its_test() -> None:
    used = {
        page
        for path in TESTS.rglob("test_*.py")
        for page in re.findall(r'documented\(\s*"([\w-]+)"', path.read_text(encoding="utf-8"))
    }
    assert used == {path.stem for path in PAGES.glob("*.md")}


def test_another_writer_was_faster(location: str) -> None:
    table = open_table(location)
    base = table.metadata
    UpdateProperties(open_table(location)).set("a", "1").commit()

    def stale() -> None:
        table.operations.commit(base, with_properties(base, {"b": "1"}))

    with pytest.raises(CommitConflictError) as raised:
        retry_on_conflict(ONCE, stale)
    documented("commit-conflict-error", raised.value)


def test_nobody_knows_whether_a_commit_happened(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(location)

    def lost(*args: Any) -> None:
        raise CommitStateUnknownError(f"{location}: the answer was lost")

    monkeypatch.setattr(type(table.operations), "commit", lost)
    with pytest.raises(CommitStateUnknownError) as raised:
        append(table, pa.table({"id": [1], "customer": ["a"]}))
    documented("commit-state-unknown-error", raised.value)


def test_a_plan_that_is_too_old(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path, [(number, "v") for number in range(8)]).start(2)
    plan = Recovery(open_table(stream.location), "main", "p", stream.directory, stream.location).rewind(0)
    stream.go_on(1)
    with pytest.raises(ConflictValidationError) as raised:
        plan.carry_out()
    documented("conflict-validation-error", raised.value)


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        parse_pipeline("checkpiont: /c\n", "p.yaml", {})
    documented("invalid-option-error", raised.value)
    documented("index", raised.value)


def test_a_spec_that_the_metadata_lacks(location: str) -> None:
    append(open_table(location), pa.table({"id": [1], "customer": ["a"]}))
    table = open_table(location)
    [manifest] = table.manifests(table.current_snapshot)
    with pytest.raises(DataInvalidError) as raised:
        read_manifest(table.io, manifest, {})
    documented("data-invalid-error", raised.value)


def test_index_runs_of_another_key(location: str) -> None:
    staged = SimpleNamespace(identity=IDENTITY, key_ids=(1,), sequence_ids=(), index_state=None)
    key = SimpleNamespace(key_ids=(1, 2), sequence_ids=())
    with pytest.raises(IndexDamagedError) as raised:
        require_same_index(open_table(location), *cast(Any, (None, key, staged)))
    documented("index-damaged-error", raised.value)


def test_a_file_that_is_gone() -> None:
    with pytest.raises(MissingFileError) as raised:
        LocalFileIO().read_bytes("/no/such/file.avro")
    documented("missing-file-error", raised.value)


def test_a_column_that_the_table_lacks(location: str) -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        append(open_table(location), pa.table({"id": [1], "custommer": ["a"]}))
    documented("schema-mismatch-error", raised.value)


def test_a_broker_that_is_not_there() -> None:
    source = KafkaSource(
        f"127.0.0.1:{free_ports(1)[0]}", "orders", options={"kafka.request.timeout.ms": "500"}
    )
    with pytest.raises(SourceError) as raised, KafkaCluster(source) as cluster:
        cluster.topics()
    documented("source-error", raised.value)


def test_an_outage_that_lasts() -> None:
    def fails() -> None:
        raise storage_error("cannot write", "s3://lake/v42.metadata.json", OSError("no route"))

    limits = {"commit.retry.num-retries": "0"}
    with pytest.raises(StorageError) as raised:
        OutageRetry(lambda: limits).commit(IDENTITY, fails)
    documented("storage-error", raised.value)


def test_a_driver_that_dies() -> None:
    driver = SimpleNamespace(begin=lambda: None, exit_code=137)
    with pytest.raises(StreamlakeError) as raised:
        _Story._follow(cast(Any, SimpleNamespace()), cast(Any, driver), iter(()))
    documented("streamlake-error", raised.value)


def test_tables_that_are_there_and_are_not(location: str) -> None:
    with pytest.raises(TableAlreadyExistsError) as there:
        create_table(location, "id long")
    documented("table-already-exists-error", there.value)
    with pytest.raises(TableNotFoundError) as gone:
        open_table(location + "x")
    documented("table-not-found-error", gone.value)


def test_more_rejects_than_allowed() -> None:
    found = [("orders-2 offset 51882", "'id' is long, but found text \"x\": a whole number is needed")]
    documented("too-many-rejects-error", too_many_rejects("/lake/orders", 1204, 1000, found))
