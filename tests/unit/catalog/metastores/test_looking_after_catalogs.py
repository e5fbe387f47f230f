"""Every operation on tables and namespaces, on every kind of catalog, against fakes and real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import streamlake
from streamlake import (
    ManageRefs,
    ReplaceSortOrder,
    UpdatePartitionSpec,
    UpdateProperties,
    UpdateSchema,
    create_namespace,
    create_table,
    drop_namespace,
    drop_table,
    list_namespaces,
    list_tables,
    load_table,
    namespace_properties,
    register_table,
    rename_table,
    update_namespace_properties,
)
from streamlake.catalog.open import open_table
from streamlake.errors import (
    ConflictValidationError,
    FeatureUnsupportedError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.storage.local import local_path
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.moto_services import AwsServices, LostAnswerError
from tests.helpers.rest_catalog import RestServer

KINDS = ["hadoop", "sql", "glue", "dynamodb", "rest", "hive"]
METASTORES = ["sql", "glue", "dynamodb", "hive"]
Catalog = dict[str, str]


@pytest.fixture(params=KINDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    warehouse = f"file://{tmp_path}/wh"
    kind = request.param
    if kind == "hadoop":
        (tmp_path / "wh").mkdir()
        yield {"type": "hadoop", "warehouse": str(tmp_path / "wh")}
    elif kind in ("glue", "dynamodb"):
        aws: AwsServices = request.getfixturevalue("aws")
        yield {**getattr(aws, kind), "warehouse": warehouse, "name": tmp_path.name}
    elif kind == "hive":
        server = request.getfixturevalue("hive_server")
        yield {"type": "hive", "uri": server.uri, "warehouse": warehouse, "name": tmp_path.name}
    else:
        sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        if kind == "sql":
            yield {**sql, "name": tmp_path.name}
            return
        from pyiceberg.catalog import load_catalog

        with RestServer(load_catalog("default", **sql)).running() as running:
            yield {"type": "rest", "uri": running.uri, "name": tmp_path.name}


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A namespace of the test's own: the Hive server outlives a test."""
    return f"db_{abs(hash(str(tmp_path)))}"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array([f"d{each}" for each in ids])})


def data_files(table: str, catalog: Catalog) -> list[Path]:
    location = local_path(load_table(table, catalog).location)
    return [path for path in Path(location).rglob("*") if path.is_file()]


def test_namespaces_are_created_listed_and_dropped(catalog: Catalog, db: str) -> None:
    create_namespace(db, catalog)
    assert db in list_namespaces(catalog)
    assert list_tables(catalog, db) == []
    with pytest.raises(TableAlreadyExistsError, match=db):
        create_namespace(db, catalog)
    create_table(f"{db}.t", "id long", catalog)
    with pytest.raises(InvalidOptionError, match=r"not empty|drop"):
        drop_namespace(db, catalog)
    drop_table(f"{db}.t", catalog, purge=True)
    drop_namespace(db, catalog)
    assert db not in list_namespaces(catalog)
    for call in (drop_namespace, namespace_properties):
        with pytest.raises(TableNotFoundError, match=db):
            call(db, catalog)
    with pytest.raises(TableNotFoundError, match=db):
        list_tables(catalog, db)


def test_properties_of_a_namespace(catalog: Catalog, db: str) -> None:
    if catalog["type"] == "hadoop":
        create_namespace(db, catalog)
        assert namespace_properties(db, catalog)["location"].endswith(db)
        with pytest.raises(FeatureUnsupportedError, match="owner"):
            update_namespace_properties(db, catalog, {"owner": "us"})
        with pytest.raises(FeatureUnsupportedError, match="properties"):
            create_namespace(f"{db}x", catalog, {"owner": "us"})
        return
    create_namespace(db, catalog, {"owned": "us"})
    update_namespace_properties(db, catalog, {"team": "lake"}, ["owned"])
    found = namespace_properties(db, catalog)
    assert found["team"] == "lake"
    assert "owned" not in found
    with pytest.raises(InvalidOptionError, match="team"):
        update_namespace_properties(db, catalog, {"team": "lake"}, ["team"])


def test_tables_are_listed_and_dropped_with_their_files(catalog: Catalog, db: str) -> None:
    for name in ("b", "a"):
        append(create_table(f"{db}.{name}", "id long, at string", catalog).table, rows(1))
    assert list_tables(catalog, db) == [f"{db}.a", f"{db}.b"]
    assert {f"{db}.a", f"{db}.b"} <= set(list_tables(catalog))
    files = data_files(f"{db}.a", catalog)
    assert len(files) > 3
    planned = drop_table(f"{db}.a", catalog, purge=True, dry_run=True)
    assert planned.by_server == (catalog["type"] == "rest")
    assert all(path.exists() for path in files)
    drop_table(f"{db}.a", catalog, purge=True)
    left = [path for path in files if path.exists() and not path.name.endswith(".crc")]
    assert left == []
    assert list_tables(catalog, db) == [f"{db}.b"]
    assert load_table(f"{db}.b", catalog).scan().count() == 1
    for purge in (False, True):
        with pytest.raises(TableNotFoundError, match=r"\.a|/a"):
            drop_table(f"{db}.a", catalog, purge=purge)
    append(create_table(f"{db}.a", "id long, at string", catalog).table, rows(2))
    assert load_table(f"{db}.a", catalog).scan().to_arrow()["id"].to_pylist() == [2]


def test_a_table_is_forgotten_and_registered_again(catalog: Catalog, db: str) -> None:
    append(create_table(f"{db}.t", "id long, at string", catalog).table, rows(1, 2))
    files = data_files(f"{db}.t", catalog)
    if catalog["type"] == "hadoop":
        for call in (
            lambda: drop_table(f"{db}.t", catalog),
            lambda: register_table(f"{db}.u", "/some/v1.metadata.json", catalog),
            lambda: rename_table(f"{db}.t", f"{db}.u", catalog),
        ):
            with pytest.raises(FeatureUnsupportedError):
                call()
        assert all(path.exists() for path in files)
        return
    newest = open_table(f"{db}.t", catalog).operations.metadata_path  # type: ignore[attr-defined]
    with pytest.raises(TableAlreadyExistsError):
        register_table(f"{db}.t", newest, catalog)
    drop_table(f"{db}.t", catalog)
    assert list_tables(catalog, db) == []
    assert all(path.exists() for path in files)
    registered = register_table(f"{db}.u", newest, catalog)
    assert registered.scan().count() == 2
    append(registered.table, rows(3))
    table = open_table(f"{db}.u", catalog)
    assert load_table(f"{db}.u", catalog).scan().count() == 3
    check_table(table, files_exist=True)


@pytest.mark.parametrize("catalog", METASTORES, indirect=True)
def test_a_metadata_file_that_is_gone_is_not_registered(catalog: Catalog, db: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="gone"):
        register_table(f"{db}.t", tmp_path / "gone.metadata.json", catalog)
    assert db not in list_namespaces(catalog)


@pytest.mark.parametrize("catalog", KINDS[1:], indirect=True)
def test_a_table_is_renamed_and_keeps_its_rows(catalog: Catalog, db: str) -> None:
    append(create_table(f"{db}.t", "id long, at string", catalog).table, rows(1))
    create_table(f"{db}.taken", "id long", catalog)
    with pytest.raises(TableAlreadyExistsError, match="taken"):
        rename_table(f"{db}.t", f"{db}.taken", catalog)
    with pytest.raises(TableNotFoundError, match="nowhere"):
        rename_table(f"{db}.t", "nowhere_at_all.t", catalog)
    with pytest.raises(TableNotFoundError, match="missing"):
        rename_table(f"{db}.missing", f"{db}.u", catalog)
    with pytest.raises(InvalidOptionError, match="already"):
        rename_table(f"{db}.t", f"{db}.t", catalog)
    held = open_table(f"{db}.t", catalog)
    create_namespace(f"{db}_2", catalog)
    rename_table(f"{db}.t", f"{db}_2.u", catalog)
    assert list_tables(catalog, db) == [f"{db}.taken"]
    assert list_tables(catalog, f"{db}_2") == [f"{db}_2.u"]
    with pytest.raises(TableNotFoundError):
        append(held, rows(9))
    append(open_table(f"{db}_2.u", catalog), rows(2))
    found = load_table(f"{db}_2.u", catalog)
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    check_table(found.table, files_exist=True)


def test_a_commit_that_meets_a_rename_is_not_lost(aws: AwsServices, tmp_path: Path) -> None:
    """Glue makes a new entry: a commit to the old one in between goes with the table, or is refused."""
    catalog = {**aws.glue, "warehouse": f"file://{tmp_path}/wh", "name": "lake"}
    append(create_table("db.t", "id long, at string", catalog).table, rows(1))
    left = [1]
    import moto.glue.responses as responses

    original = responses.GlueResponse.create_table

    def create(response: object) -> object:
        answer = original(response)
        if left:
            left.clear()
            name = "t"
            backend = response.glue_backend  # type: ignore[attr-defined]
            table = backend.get_table("db", name)
            backend.update_table("db", name, {**table.as_dict(), "Description": "another writer"})
        return answer

    responses.GlueResponse.create_table = create  # type: ignore[method-assign]
    try:
        rename_table("db.t", "db.u", catalog)
    finally:
        responses.GlueResponse.create_table = original  # type: ignore[method-assign]
    assert not left
    assert aws_entry(catalog, "db.u")["Description"] == "another writer"
    assert list_tables(catalog, "db") == ["db.u"]


def aws_entry(catalog: Catalog, name: str) -> dict[str, object]:
    from streamlake.catalog import service

    opened = service.load_service(catalog)
    database, _, table = name.partition(".")
    entry: dict[str, object] = opened.metastore.client.glue.get_table(  # type: ignore[union-attr]
        DatabaseName=database, Name=table
    )["Table"]
    return entry


@pytest.mark.parametrize("kind", ["glue", "dynamodb"])
def test_a_drop_whose_answer_is_lost_is_done_once(aws: AwsServices, tmp_path: Path, kind: str) -> None:
    catalog = {**getattr(aws, kind), "warehouse": f"file://{tmp_path}/wh", "name": "lake"}
    create_table("db.t", "id long", catalog)
    left = [1]

    def lose(action: str, after: bool) -> None:
        if action in ("DeleteTable", "DeleteItem") and after and left:
            left.clear()
            raise LostAnswerError

    aws.fault = lose
    drop_table("db.t", catalog)
    aws.fault = None
    assert not left
    assert list_tables(catalog, "db") == []


@pytest.mark.parametrize("catalog", METASTORES, indirect=True)
def test_two_names_of_one_table_are_not_purged(catalog: Catalog, db: str) -> None:
    append(create_table(f"{db}.t", "id long, at string", catalog).table, rows(1))
    newest = open_table(f"{db}.t", catalog).operations.metadata_path  # type: ignore[attr-defined]
    register_table(f"{db}.again", newest, catalog)
    with pytest.raises(InvalidOptionError, match="again is the same table"):
        drop_table(f"{db}.t", catalog, purge=True)
    assert load_table(f"{db}.t", catalog).scan().count() == 1
    drop_table(f"{db}.again", catalog)
    drop_table(f"{db}.t", catalog, purge=True)
    assert list_tables(catalog, db) == []


@pytest.mark.parametrize("catalog", METASTORES, indirect=True)
def test_a_table_whose_metadata_is_gone_is_dropped_without_files(catalog: Catalog, db: str) -> None:
    table = create_table(f"{db}.t", "id long", catalog).table
    Path(local_path(table.operations.metadata_path)).unlink()  # type: ignore[attr-defined]
    with pytest.raises(InvalidOptionError, match="without its files"):
        drop_table(f"{db}.t", catalog, purge=True)
    drop_table(f"{db}.t", catalog)
    assert list_tables(catalog, db) == []


def test_a_table_evolves_in_every_part(catalog: Catalog, db: str) -> None:
    name = f"{db}.t"
    append(create_table(name, "id long, at string, n int", catalog).table, rows(1, 2))
    table = open_table(name, catalog)
    first = table.metadata.current_snapshot_id
    UpdateSchema(table).add_column("note", "string", doc="why").rename("at", "day").widen(
        "n", "long"
    ).commit()
    UpdateSchema(table).make_required("id").set_identifier_fields(["id"]).commit()
    moved = UpdateSchema(table).move_first("note")
    if catalog["type"] == "hive":
        before = open_table(name, catalog).operations.metadata_path  # type: ignore[attr-defined]
        with pytest.raises(StorageError, match=r"disallow\.incompatible\.col\.type\.changes=false"):
            moved.commit()
        assert open_table(name, catalog).operations.metadata_path == before  # type: ignore[attr-defined]
    else:
        moved.commit()
    UpdatePartitionSpec(table).add_field("bucket(4, id)").add_field("day", "part").commit()
    UpdatePartitionSpec(table).rename_field("part", "by_day").commit()
    ReplaceSortOrder(table).by("id desc nulls last", "day").commit()
    UpdateProperties(table).set("mine", "1").remove("write.metadata.previous-versions-max").commit()
    fresh = load_table(name, catalog)
    append(
        fresh.table,
        pa.table(
            {"note": ["x"], "id": pa.array([3], pa.int64()), "day": ["d3"], "n": pa.array([7], pa.int64())}
        ),
    )
    refs = ManageRefs(open_table(name, catalog))
    refs.create_tag("t", first, max_ref_age_ms=10**12).create_branch(
        "b", first, min_snapshots_to_keep=3
    ).commit()
    table = open_table(name, catalog)
    ManageRefs(table).fast_forward("b", "main").commit()
    assert table.refs["b"].snapshot_id == table.metadata.current_snapshot_id
    assert table.refs["b"].min_snapshots_to_keep == 3
    ManageRefs(table).rollback_to(first or 0).commit()
    ManageRefs(table).set_retention("t", max_ref_age_ms=1).remove("b").commit()
    found = load_table(name, catalog)
    assert found.expire_refs("tag", dry_run=True) == ("t",)
    assert found.expire_refs("branch") == ()
    assert found.expire_refs() == ("t",)
    found = load_table(name, catalog)
    names = ["id", "day", "n", "note"] if catalog["type"] == "hive" else ["note", "id", "day", "n"]
    assert found.schema.column_names == names
    assert [part.name for part in found.spec.fields] == ["id_bucket_4", "by_day"]
    assert [str(part.transform) for part in found.sort_order.fields] == ["identity", "identity"]
    assert found.properties["mine"] == "1"
    assert "write.metadata.previous-versions-max" not in found.properties
    assert sorted(found.refs) == ["main"]
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    check_table(found.table)
    ReplaceSortOrder(found.table).commit()
    UpdatePartitionSpec(found.table).remove_field("by_day").remove_field("bucket(4, id)").commit()
    found = load_table(name, catalog)
    assert found.spec.is_unpartitioned
    assert found.sort_order.is_unsorted
    assert found.delete("id = 1").rows == 1
    assert load_table(name, catalog).scan().to_arrow()["id"].to_pylist() == [2]


def test_what_cannot_be_done_changes_nothing(tmp_path: Path) -> None:
    table = create_table(tmp_path / "t", "id long, day date, s struct<a: int>").table
    first = append(table, rows_of(1)).snapshot_id
    second = append(table, rows_of(2)).snapshot_id
    ManageRefs(table).create_tag("first", first).create_branch("side", first).commit()
    side = append(table, rows_of(3), branch="side").snapshot_id
    before = table.operations.metadata_path  # type: ignore[attr-defined]
    wrong = InvalidOptionError
    for error, match, change in (
        (wrong, "no column 'idd'. Did you mean 'id'", UpdateSchema(table).rename("idd", "x")),
        (wrong, "idd", ReplaceSortOrder(table).by("idd")),
        (wrong, "idd", UpdatePartitionSpec(table).add_field("bucket(2, idd)")),
        (wrong, "name of a column", UpdatePartitionSpec(table).add_field("day", "id")),
        (wrong, "no partition field 'x'", UpdatePartitionSpec(table).remove_field("x")),
        (wrong, "twice", UpdatePartitionSpec(table).add_field("day(day)").add_field("month(day)")),
        (wrong, "already", UpdatePartitionSpec(table).add_field("id").add_field("id", "other")),
        (wrong, "divides no rows", UpdatePartitionSpec(table).add_field("void(id)")),
        (wrong, "no branch 'none'", ManageRefs(table).fast_forward("none", "main")),
        (wrong, "no branch or tag 'none'", ManageRefs(table).fast_forward("side", "none")),
        (wrong, "'first' is a tag and no branch", ManageRefs(table).fast_forward("first", "main")),
        (ConflictValidationError, "already has a tag", ManageRefs(table).create_tag("first", second)),
        (ConflictValidationError, "not among", ManageRefs(table).fast_forward("side", "main")),
        (wrong, "not built on", ManageRefs(table).rollback_to(side)),
        (wrong, "has no snapshot 7", ManageRefs(table).rollback_to(7)),
        (wrong, "no snapshot from before", ManageRefs(table).rollback_to_time(1)),
        (wrong, "main branch cannot be removed", ManageRefs(table).remove("main")),
        (wrong, "keeps one snapshot", ManageRefs(table).set_retention("first", min_snapshots_to_keep=2)),
        (SchemaMismatchError, "nulls in it", UpdateSchema(table).make_required("day")),
        (SchemaMismatchError, "can be null", UpdateSchema(table).make_required("s.a")),
    ):
        with pytest.raises(error, match=match):
            change.commit()  # type: ignore[attr-defined]
        assert table.refresh().operations.metadata_path == before  # type: ignore[attr-defined]
    for make in (
        lambda: ManageRefs(table).create_tag("main"),
        lambda: ManageRefs(table).create_tag(" "),
        lambda: ManageRefs(table).create_branch("b", max_ref_age_ms=0),
        lambda: ManageRefs(table).set_retention("main", max_ref_age_ms=5),
    ):
        with pytest.raises(InvalidOptionError):
            make()
    with pytest.raises(InvalidOptionError, match="no catalog"):
        list_tables(None)
    with pytest.raises(FeatureUnsupportedError, match=r"Drop it with --purge"):
        drop_table(table.location)
    with pytest.raises(InvalidOptionError, match="not a table name"):
        rename_table("db.t", "t", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "/x"})


def rows_of(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def test_unicode_and_inner_namespaces_in_a_sql_catalog(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
    create_table("lager.größe.märz", "id long", catalog)
    create_table("lager.x", "id long", catalog)
    assert list_namespaces(catalog) == ["lager"]
    assert list_namespaces(catalog, "lager") == ["lager.größe"]
    assert list_tables(catalog) == ["lager.größe.märz", "lager.x"]
    rename_table("lager.größe.märz", "lager.größe.april", catalog)
    with pytest.raises(InvalidOptionError, match="namespaces"):
        drop_namespace("lager", catalog)
    drop_table("lager.x", catalog, purge=True)
    assert list_tables(catalog, "lager.größe") == ["lager.größe.april"]


def test_a_path_table_is_purged_and_a_table_inside_of_it_stays(tmp_path: Path) -> None:
    outer = create_table(tmp_path / "t", "id long").table
    append(outer, rows_of(1))
    inner = create_table(tmp_path / "t" / "data" / "inner", "id long").table
    append(inner, rows_of(2))
    (tmp_path / "t" / "notes.txt").write_text("mine")
    orphan = tmp_path / "t" / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    done = drop_table(tmp_path / "t", purge=True)
    assert done.purged
    assert not orphan.exists()
    assert (tmp_path / "t" / "notes.txt").exists()
    assert not (tmp_path / "t" / "metadata").exists()
    assert load_table(inner.location).scan().count() == 1
    with pytest.raises(TableNotFoundError):
        load_table(tmp_path / "t")


def test_files_of_another_table_are_not_purged(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
    source = create_table("db.source", "id long", catalog).table
    append(source, rows_of(1))
    copy = create_table("db.copy", "id long", catalog).table
    from streamlake.table.producers.append_files import AppendFiles
    from tests.helpers.invariants import live_data_files

    AppendFiles(copy).append_file(live_data_files(source)[0]).commit()
    with pytest.raises(InvalidOptionError, match=r"db\.source has the location of one of its files"):
        drop_table("db.copy", catalog, purge=True)
    UpdateProperties(copy).set("gc.enabled", "false").commit()
    with pytest.raises(InvalidOptionError, match=r"gc\.enabled"):
        drop_table("db.copy", catalog, purge=True)
    drop_table("db.copy", catalog)
    assert load_table("db.source", catalog).scan().count() == 1


def test_public_names_are_all_there() -> None:
    for name in streamlake.__all__:
        assert getattr(streamlake, name) is not None
