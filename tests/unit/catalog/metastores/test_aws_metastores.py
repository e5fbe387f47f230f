"""Glue and DynamoDB: what is written there, and that every commit is there once, whatever happens to requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamlake import create_table, load_table
from streamlake.catalog import service
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.open import open_table
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidOptionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.moto_services import AwsServices, LostAnswerError
from tests.helpers.tables import FAST_CHECKS, data_file

PATIENT = {
    **FAST_CHECKS,
    "commit.retry.num-retries": "200",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "50",
}
SWAPS = {"glue": "UpdateTable", "dynamodb": "UpdateItem"}
INSERTS = {"glue": "CreateTable", "dynamodb": "PutItem"}


@pytest.fixture(params=["glue", "dynamodb"])
def catalog(request: pytest.FixtureRequest, aws: AwsServices, tmp_path: Path) -> dict[str, str]:
    given = getattr(aws, request.param)
    return {**given, "warehouse": f"file://{tmp_path}", "name": tmp_path.name}


def client(catalog: dict[str, str]) -> Any:
    opened = service.load_service(catalog)
    assert isinstance(opened, MetastoreCatalog)
    return opened.metastore.client  # type: ignore[attr-defined]


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "db.db" / "t" / "metadata").glob("*.metadata.json"))


def test_a_table_of_version_3_lives_in_it_and_pyiceberg_reads_it(catalog: dict[str, str]) -> None:
    create_table("db.t", "id long, at timestamp", catalog, format_version=3)
    table = open_table("db.t", catalog)
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(open_table("db.t", catalog))
    theirs = client(catalog).load_table("db.t")
    assert (theirs.format_version, theirs.current_snapshot().snapshot_id) == (
        3,
        table.metadata.current_snapshot_id,
    )
    with pytest.raises(TableAlreadyExistsError):
        create_table("db.t", "id long", catalog)
    with pytest.raises(TableNotFoundError, match=r"db\.none"):
        load_table("db.none", catalog)


def test_a_commit_is_one_read_and_one_swap(aws: AwsServices, catalog: dict[str, str]) -> None:
    create_table("db.t", "id long", catalog)
    table = open_table("db.t", catalog)
    aws.actions.clear()
    AppendFiles(table).append_file(data_file(table)).commit()
    read = "GetTable" if catalog["type"] == "glue" else "GetItem"
    assert aws.actions == [read, SWAPS[catalog["type"]]]


def test_writers_at_once_lose_nothing(catalog: dict[str, str]) -> None:
    create_table("db.t", "id long", catalog, properties=PATIENT)

    def write(writer: str) -> None:
        table = open_table("db.t", catalog)
        for number in range(50):
            UpdateProperties(table).set(f"{writer}-{number}", "1").commit()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, "a"), pool.submit(write, "b")]:
            done.result()
    table = open_table("db.t", catalog)
    assert sum(key[:2] in ("a-", "b-") for key in table.properties) == 100
    assert len(table.metadata.metadata_log) == 100
    check_table(table)


@pytest.mark.parametrize("done", [False, True])
def test_an_answer_that_is_lost_once_is_asked_for_again(
    aws: AwsServices, catalog: dict[str, str], done: bool, tmp_path: Path
) -> None:
    """The client repeats the request: where the first one was done, the second is refused."""
    create_table("db.t", "id long", catalog)
    operations = open_table("db.t", catalog).operations
    left = [1]

    def lose(action: str, after: bool) -> None:
        if action == SWAPS[catalog["type"]] and after is done and left:
            left.clear()
            raise LostAnswerError

    aws.fault = lose
    base = operations.refresh()
    operations.commit(base, with_properties(base, {"p": "1"}))
    assert not left
    assert load_table("db.t", catalog).properties["p"] == "1"
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("done", [False, True])
def test_a_swap_whose_answers_are_all_lost_is_looked_for(
    aws: AwsServices, catalog: dict[str, str], done: bool, tmp_path: Path
) -> None:
    create_table("db.t", "id long", catalog)
    operations = open_table("db.t", catalog).operations

    def lose(action: str, after: bool) -> None:
        if action == SWAPS[catalog["type"]] and after is done:
            raise LostAnswerError

    aws.fault = lose
    base = operations.refresh()
    changed = with_properties(base, {"p": "1"})
    if done:
        assert operations.commit(base, changed).properties["p"] == "1"
    else:
        with pytest.raises(CommitStateUnknownError):
            operations.commit(base, changed)
    assert len(files(tmp_path)) == 2
    aws.fault = None
    assert load_table("db.t", catalog).properties.get("p") == ("1" if done else None)


def test_a_table_whose_creation_is_not_answered(
    aws: AwsServices, catalog: dict[str, str], tmp_path: Path
) -> None:
    client(catalog).create_namespace("db")

    def lose(action: str, after: bool) -> None:
        if action == INSERTS[catalog["type"]] and after:
            raise LostAnswerError

    aws.fault = lose
    create_table("db.t", "id long", catalog)
    assert load_table("db.t", catalog).scan().count() == 0
    assert len(files(tmp_path)) == 1


def test_another_writers_swap_is_a_conflict_and_leaves_no_file(
    catalog: dict[str, str], tmp_path: Path
) -> None:
    create_table("db.t", "id long", catalog)
    table, other = open_table("db.t", catalog), open_table("db.t", catalog)
    base = table.operations.refresh()
    UpdateProperties(other).set("p", "other").commit()
    with pytest.raises(CommitConflictError):
        table.operations.commit(base, with_properties(base, {"p": "1"}))
    assert len(files(tmp_path)) == 2


def test_a_dropped_table_is_not_brought_back(catalog: dict[str, str], tmp_path: Path) -> None:
    create_table("db.t", "id long", catalog)
    table = open_table("db.t", catalog)
    base = table.operations.refresh()
    client(catalog).drop_table("db.t")
    with pytest.raises((TableNotFoundError, CommitConflictError)):
        table.operations.commit(base, with_properties(base, {"p": "1"}))
    with pytest.raises(TableNotFoundError):
        load_table("db.t", catalog)


def test_what_glue_shows_is_what_icebergs_own_catalog_shows(aws: AwsServices, tmp_path: Path) -> None:
    catalog = {**aws.glue, "warehouse": f"file://{tmp_path}", "name": "shown"}
    create_table(
        "db.t", "id long not null, at timestamp, s struct<a: decimal(9,2), b: list<string>>", catalog
    )
    glue = client(catalog).glue
    entry = glue.get_table(DatabaseName="db", Name="t")["Table"]
    columns = entry["StorageDescriptor"]["Columns"]
    assert [(column["Name"], column["Type"]) for column in columns] == [
        ("id", "bigint"),
        ("at", "timestamp"),
        ("s", "struct<a:decimal(9,2),b:array<string>>"),
    ]
    assert columns[0]["Parameters"] == {
        "iceberg.field.id": "1",
        "iceberg.field.optional": "false",
        "iceberg.field.current": "true",
    }
    kept = {key: entry[key] for key in ("Name", "TableType", "StorageDescriptor")}
    columns[0]["Comment"] = "by hand"
    glue.update_table(
        DatabaseName="db",
        TableInput={**kept, "Description": "ours", "Parameters": {**entry["Parameters"], "mine": "1"}},
    )
    table = open_table("db.t", catalog)
    UpdateSchema(table).delete("at").commit()
    entry = glue.get_table(DatabaseName="db", Name="t")["Table"]
    assert (entry["Description"], entry["Parameters"]["mine"]) == ("ours", "1")
    assert entry["Parameters"]["table_type"] == "ICEBERG"
    columns = entry["StorageDescriptor"]["Columns"]
    assert [(each["Name"], each["Parameters"]["iceberg.field.current"]) for each in columns] == [
        ("id", "true"),
        ("s", "true"),
        ("at", "false"),
    ]
    assert columns[0]["Comment"] == "by hand"


def test_glue_keeps_no_superseded_entries_unless_asked(aws: AwsServices, tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []
    for asked, skipped in ({}, True), ({"glue.skip-archive": "false"}, False):
        catalog = {**aws.glue, **asked, "warehouse": f"file://{tmp_path}", "name": f"archive-{skipped}"}
        name = f"db.t{int(skipped)}"
        create_table(name, "id long", catalog)
        events = client(catalog).glue.meta.events
        events.register("provide-client-params.glue.UpdateTable", lambda params, **_: sent.append(params))
        UpdateProperties(open_table(name, catalog)).set("p", "1").commit()
    assert [(each["SkipArchive"], each["VersionId"]) for each in sent] == [(True, "1"), (False, "1")]


def test_glue_takes_only_some_names(aws: AwsServices, tmp_path: Path) -> None:
    catalog = {**aws.glue, "warehouse": f"file://{tmp_path}", "name": "names"}
    with pytest.raises(InvalidOptionError, match="'Orders' is none"):
        create_table("db.Orders", "id long", catalog)
    client(catalog).create_namespace("db")
    client(catalog).glue.create_table(DatabaseName="db", TableInput={"Name": "csv", "Parameters": {}})
    with pytest.raises(TableNotFoundError, match="not an Iceberg table"):
        load_table("db.csv", catalog)


def test_the_item_is_the_one_of_icebergs_own_catalog(aws: AwsServices, tmp_path: Path) -> None:
    catalog = {**aws.dynamodb, "warehouse": str(tmp_path), "dynamodb.table-name": "lake", "name": "items"}
    create_table("db.t", "id long", catalog)
    dynamodb = client(catalog).dynamodb
    (first,) = (
        item for item in dynamodb.scan(TableName="lake")["Items"] if item["identifier"]["S"] == "db.t"
    )
    UpdateProperties(open_table("db.t", catalog)).set("p", "1").commit()
    (item,) = (item for item in dynamodb.scan(TableName="lake")["Items"] if item["identifier"]["S"] == "db.t")
    assert {key: list(value) for key, value in item.items()} == {
        "identifier": ["S"],
        "namespace": ["S"],
        "p.table_type": ["S"],
        "p.metadata_location": ["S"],
        "p.previous_metadata_location": ["S"],
        "created_at": ["N"],
        "updated_at": ["N"],
        "v": ["S"],
    }
    assert item["p.previous_metadata_location"] == first["p.metadata_location"]
    assert (item["namespace"]["S"], item["p.table_type"]["S"]) == ("db", "ICEBERG")
    assert item["v"] != first["v"]
    namespace = {"identifier": {"S": "NAMESPACE"}, "namespace": {"S": "db"}}
    dynamodb.update_item(
        TableName="lake",
        Key=namespace,
        UpdateExpression="SET #place = :place",
        ExpressionAttributeNames={"#place": "p.default_location"},
        ExpressionAttributeValues={":place": {"S": f"{tmp_path}/elsewhere"}},
    )
    assert create_table("db.u", "id long", catalog).location == f"{tmp_path}/elsewhere/u"


def test_tables_on_s3(aws: AwsServices, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files go to an object store, whose settings alone travel with them."""
    import boto3

    boto3.client(
        "s3",
        endpoint_url=aws.endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    ).create_bucket(Bucket="lake")
    where = {**catalog, "warehouse": "s3://lake/wh", **aws.s3, "s3.region": "us-east-1"}
    create_table("db.t", "id long", where, format_version=3)
    table = open_table("db.t", where)
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(open_table("db.t", where))
    assert not [key for key in table.io.properties if not key.startswith(("s3.", "client."))]  # type: ignore[attr-defined]
