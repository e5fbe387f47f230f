from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlake.catalog import service
from streamlake.catalog.metadata_diff import requirements, updates
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.metastores.sql_metastore import SqlMetastore
from streamlake.catalog.open import create, open_table
from streamlake.catalog.service_catalog import ServiceTableOperations
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    FeatureUnsupportedError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_text import columns_text
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.processes import free_ports
from tests.helpers.rest_catalog import RestServer
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, FaultyOperations, data_file, make_table


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """A SQL catalog in a file, through PyIceberg's client."""
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{warehouse}"}


def new_table(catalog: dict[str, str], format_version: int = 2) -> Table:
    schema = parse_ddl("id long, category string, ts timestamp")
    spec = parse_partition_by(["category", "day(ts)"], schema)
    order = parse_sort_by(["ts desc"], schema)
    return create("db.t", schema, spec, order, format_version, {**FAST_RETRIES, **FAST_CHECKS}, catalog)


def test_a_table_lives_in_a_catalog_service(catalog: dict[str, str]) -> None:
    table = new_table(catalog)
    assert [part.name for part in table.spec.fields] == ["category", "ts_day"]
    assert not table.sort_order.is_unsorted
    first = data_file(table, "a", 19000, records=3)
    append = AppendFiles(table).append_file(first).append_file(data_file(table, "b", 19000, records=4))
    append.set_properties({"marker": "1"})
    snapshot = append.commit()
    AppendFiles(table, branch="dev").append_file(data_file(table, "c", 1)).commit()
    OverwriteFiles(table).overwrite_by_filter("category = 'b'").commit()
    ManageRefs(table).create_tag("v1", snapshot.snapshot_id).commit()
    UpdateProperties(table).set("p", "1").remove("marker").commit()
    ManageRefs(table).remove("dev").commit()
    fresh = open_table("db.t", catalog)
    check_table(fresh)
    assert [file.file_path for file in live_data_files(fresh)] == [first.file_path]
    assert sorted(fresh.refs) == ["main", "v1"]
    assert (fresh.properties["p"], "marker" in fresh.properties) == ("1", False)
    assert fresh.metadata.snapshot(snapshot.snapshot_id) == snapshot


def test_a_schema_evolves_in_a_catalog_service(catalog: dict[str, str]) -> None:
    table = new_table(catalog)
    stale = open_table("db.t", catalog)
    UpdateSchema(table).add_column("s", "struct<a: int, b: float>").rename("category", "kind").commit()
    UpdateSchema(stale).widen("s.a", "long").add_column("n", "int", parent="s").make_optional("id").commit()
    fresh = open_table("db.t", catalog)
    assert columns_text(fresh.schema) == (
        "id long, kind string, ts timestamptz, s struct<a: long, b: float, n: int>"
    )
    assert fresh.metadata.last_column_id == 7 == fresh.schema.find("s.n").field_id  # type: ignore[union-attr]
    assert [schema.schema_id for schema in fresh.metadata.schemas] == [0, 1, 2]
    again = UpdateSchema(table).delete("s").rename("kind", "category").commit()
    assert again.current_schema_id == 0, "that schema is there already"
    check_table(open_table("db.t", catalog))


def test_a_service_holds_tables_of_every_format_version(catalog: dict[str, str]) -> None:
    third = create("db.third", parse_ddl("id long"), format_version=3, catalog=catalog)
    AppendFiles(third).append_file(data_file(third)).commit()
    assert open_table("db.third", catalog).metadata.next_row_id == 10
    table = new_table(catalog)
    UpdateProperties(table).upgrade_format_version(3).commit()
    AppendFiles(table).append_file(data_file(table, "a", 1)).commit()
    fresh = open_table("db.t", catalog)
    assert fresh.format_version == 3
    check_table(fresh)


def test_conflicts_are_retried_and_outcomes_found(catalog: dict[str, str]) -> None:
    table = new_table(catalog)
    AppendFiles(table, branch="dev").append_file(data_file(table, "x", 1)).commit()
    left = [2]

    def other_first() -> None:
        if left[0]:
            left[0] -= 1
            other = open_table("db.t", catalog)
            AppendFiles(other, branch="dev").append_file(data_file(other, "x", 1)).commit()

    def lost() -> None:
        raise CommitStateUnknownError("lost")

    operations = FaultyOperations(table.operations, before_swap=other_first, after_swap=lost)
    AppendFiles(Table("db.t", operations)).append_file(data_file(table, "a", 1)).commit()
    assert operations.attempts == 3
    fresh = open_table("db.t", catalog)
    check_table(fresh)
    assert [snapshot.sequence_number for snapshot in fresh.snapshots] == [1, 2, 3, 4]


def test_two_writers_that_create_one_branch_of_an_empty_table_both_end_up_on_it(
    catalog: dict[str, str],
) -> None:
    table = new_table(catalog)
    left = [1]

    def other_first() -> None:
        if left[0]:
            left[0] -= 1
            other = open_table("db.t", catalog)
            AppendFiles(other, branch="audit").append_file(data_file(other, "a", 1)).commit()

    operations = FaultyOperations(table.operations, before_swap=other_first)
    AppendFiles(Table("db.t", operations), branch="audit").append_file(data_file(table, "b", 1)).commit()
    metadata = open_table("db.t", catalog).metadata
    assert len(list(metadata.ancestors(metadata.refs["audit"].snapshot_id))) == 2


def test_a_table_that_was_replaced_is_not_taken_for_the_old_one(catalog: dict[str, str]) -> None:
    table = new_table(catalog)
    client_of(catalog).drop_table("db.t")
    again = new_table(catalog)
    assert again.uuid != table.uuid
    with pytest.raises(DataInvalidError, match="another table"):
        AppendFiles(table).append_file(data_file(table, "a", 1)).commit()
    assert open_table("db.t", catalog).snapshots == ()


def test_errors_of_a_client_are_sorted_by_what_they_mean(
    catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import exceptions

    new_table(catalog)
    cases: list[tuple[Exception, type[Exception]]] = [
        (exceptions.CommitFailedException("x"), CommitConflictError),
        (exceptions.WaitingForLockException("x"), CommitConflictError),
        (ValueError("Cannot add snapshot with sequence number 1"), CommitConflictError),
        (exceptions.CommitStateUnknownException("x"), CommitStateUnknownError),
        (ConnectionResetError("x"), CommitStateUnknownError),
        (ValueError("no JSON"), CommitStateUnknownError),
        (exceptions.ForbiddenError("x"), StorageError),
        (exceptions.NoSuchTableError("x"), TableNotFoundError),
    ]
    with RestServer(client_of(catalog)).running() as server:
        operations = open_table("db.t", {"type": "rest", "uri": server.uri}).operations
        assert isinstance(operations, ServiceTableOperations)
        for raised, expected in cases:
            monkeypatch.setattr(operations._catalog.client, "commit_table", _raising(raised))
            base = operations.refresh()
            with pytest.raises(expected):
                operations.commit(base, with_properties(base, {"p": "1"}))


def client_of(catalog: dict[str, str]) -> Any:
    opened = service.load_service(catalog)
    assert isinstance(opened, MetastoreCatalog)
    assert isinstance(opened.metastore, SqlMetastore)
    return opened.metastore.client


def _raising(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> None:
        raise error

    return call


def test_an_unreachable_service_is_a_storage_error(
    catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog)
    monkeypatch.setattr(
        client_of(catalog).engine, "connect", _raising(ConnectionRefusedError("nobody listens"))
    )
    with pytest.raises(StorageError, match="nobody listens"):
        table.refresh()


def test_a_catalog_of_pyicebergs_configuration_goes_by_its_name(
    catalog: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  lake:\n    type: sql\n    uri: {catalog['uri']}\n    warehouse: {catalog['warehouse']}\n"
    )
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    create("db.t", parse_ddl("id long"), format_version=3, catalog="lake")
    assert open_table("db.t", {**catalog, "name": "lake"}).uuid == open_table("db.t", "lake").uuid
    monkeypatch.delenv("PYICEBERG_HOME")
    monkeypatch.setenv("PYICEBERG_CATALOG__SEA__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SEA__URI", catalog["uri"])
    with pytest.raises(TableNotFoundError, match="under the catalog name 'lake'"):
        open_table("db.t", "sea")


def test_clients_are_made_once_per_process_and_catalog(catalog: dict[str, str]) -> None:
    assert service.load_service(catalog) is service.load_service(dict(catalog))
    assert service.load_service({**catalog, "name": "other"}) is not service.load_service(catalog)


def test_a_service_that_does_not_answer_when_it_is_opened_is_a_storage_error(tmp_path: Path) -> None:
    """It may be back soon, so whoever opens a table may try again."""
    with pytest.raises(StorageError, match="the rest catalog cannot be reached"):
        open_table("db.t", {"type": "rest", "uri": f"http://127.0.0.1:{free_ports(1)[0]}"})
    with pytest.raises(StorageError, match="the sql catalog cannot be reached"):
        open_table(
            "db.t", {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/c.db", "warehouse": "file:///w"}
        )


def test_missing_and_existing_tables(catalog: dict[str, str]) -> None:
    with pytest.raises(TableNotFoundError, match=r"db\.t"):
        open_table("db.t", catalog)
    new_table(catalog)
    with pytest.raises(TableAlreadyExistsError, match=r"db\.t"):
        new_table(catalog)


def test_catalogs_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'hadoop'"):
        open_table("db.t", {"type": "hadop"})
    with pytest.raises(
        InvalidOptionError, match="lacks the address of the catalog; add uri, such as uri=http"
    ):
        open_table("db.t", {"type": "rest"})
    with pytest.raises(InvalidOptionError, match="no-such-catalog"):
        open_table("db.t", "no-such-catalog")

    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(service, "import_module", absent)
    for kind, extra in {"rest": "rest", "hive": "hive", "in-memory": "sql"}.items():
        with pytest.raises(InvalidOptionError, match=rf"streamlake\[{extra}\]"):
            open_table("db.t", {"type": kind, "uri": "http://127.0.0.1:1"})
    with pytest.raises(InvalidOptionError, match=r"streamlake\[all\]"):
        open_table("db.t", "my-catalog")


def test_a_catalog_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg is there, and what it needs for this kind of catalog is not."""
    monkeypatch.setitem(sys.modules, "thrift", None)
    for name in [*sys.modules]:
        if name.startswith(("thrift.", "pyiceberg.catalog.hive", "streamlake.catalog.metastores.hive")):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidOptionError, match=r"python -m pip install 'streamlake\[hive\]'"):
        open_table("db.t", {"type": "hive", "uri": "thrift://127.0.0.1:1"})


def test_the_difference_names_every_kind_of_change(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    AppendFiles(table).append_file(data_file(table)).commit()
    base = table.metadata
    snapshot = base.snapshots[0]
    schema = replace(base.schema, schema_id=1)
    spec = replace(parse_partition_by(["category"], base.schema), spec_id=1)
    new = replace(
        base,
        format_version=3,
        schemas=(*base.schemas, schema),
        current_schema_id=1,
        specs=(*base.specs, spec),
        default_spec_id=1,
        sort_orders=(*base.sort_orders, parse_sort_by(["id"], base.schema)),
        default_sort_order_id=1,
        snapshots=(replace(snapshot, snapshot_id=5, sequence_number=2),),
        refs={"main": replace(base.refs["main"], snapshot_id=5)},
        statistics=({"snapshot-id": 5, "statistics-path": "s"},),
    )
    assert [change["action"] for change in updates(base, new)] == [
        "upgrade-format-version",
        "add-schema",
        "set-current-schema",
        "add-spec",
        "set-default-spec",
        "add-sort-order",
        "set-default-sort-order",
        "add-snapshot",
        "remove-snapshots",
        "set-snapshot-ref",
        "set-statistics",
    ]
    assert updates(base, base) == []
    pinned = {need.get("ref"): need.get("snapshot-id") for need in requirements(base, base)}
    assert pinned["main"] == snapshot.snapshot_id
    with pytest.raises(FeatureUnsupportedError, match="location"):
        updates(base, replace(base, location="/elsewhere"))


def test_a_name_that_no_configuration_knows_is_told_where_it_could_be() -> None:
    with pytest.raises(InvalidOptionError) as refused:
        open_table("db.t", "prod")
    assert str(refused.value) == (
        "catalog 'prod' is neither in .pyiceberg.yaml (looked for in PYICEBERG_HOME, the home directory and the current "
        "one) nor in environment variables PYICEBERG_CATALOG__PROD__...: configure it there, or give its properties in "
        "place of the name"
    )
