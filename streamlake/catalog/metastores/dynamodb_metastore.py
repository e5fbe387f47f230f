"""DynamoDB as a metastore: one item per table, and a swap is a conditional update of it.

Items are those of Iceberg's DynamoDbCatalog: the key is (identifier, namespace), properties have the prefix
`p.`, and `v` is a new random id with every change, which the next one compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from streamlake import clock, ids
from streamlake.catalog.client_errors import translated
from streamlake.catalog.metastores.aws_errors import error_code, refusal
from streamlake.catalog.metastores.pointers import Change, Pointer
from streamlake.catalog.metastores.warehouse import (
    ensure_namespace,
    listed_tables,
    new_table_location,
    require_namespace,
    split_name,
)
from streamlake.catalog.storage_settings import storage_settings
from streamlake.errors import CommitConflictError, TableAlreadyExistsError, TableNotFoundError
from streamlake.spec.metadata.table_metadata import TableMetadata

_NOT_SAME = "ConditionalCheckFailedException"
_SET = "SET #path = :path, #before = :before, #type = :type, updated_at = :now, v = :new"
_PATH, _PREVIOUS, _TYPE = "p.metadata_location", "p.previous_metadata_location", "p.table_type"


def dynamodb_catalog(name: str, properties: Mapping[str, Any]) -> Any:
    """PyIceberg's DynamoDbCatalog, with the endpoint and the table that Iceberg's property names give.

    `dynamodb.endpoint`, `dynamodb.table-name` (PyIceberg: `table-name`).
    """
    given = {"type": "dynamodb", **properties}
    if "dynamodb.table-name" in given:
        given.setdefault("table-name", given["dynamodb.table-name"])

    def first(*keys: str) -> Any:
        return next((given[key] for key in keys if given.get(key)), None)

    session = import_module("boto3").Session(
        profile_name=first("dynamodb.profile-name", "client.profile-name"),
        region_name=first("dynamodb.region", "client.region"),
        aws_access_key_id=first("dynamodb.access-key-id", "client.access-key-id"),
        aws_secret_access_key=first("dynamodb.secret-access-key", "client.secret-access-key"),
        aws_session_token=first("dynamodb.session-token", "client.session-token"),
    )
    client = session.client("dynamodb", endpoint_url=first("dynamodb.endpoint"))
    catalog = import_module("pyiceberg.catalog.dynamodb").DynamoDbCatalog(name, client=client, **given)
    client.get_waiter("table_exists").wait(TableName=catalog.dynamodb_table_name)
    return catalog


class DynamoDbMetastore:
    """The tables of a catalog in DynamoDB; `client` is PyIceberg's DynamoDbCatalog. See Metastore."""

    repeats_requests = True

    def __init__(self, client: Any) -> None:
        self.client = client
        self._dynamodb = client.dynamodb
        self._items = client.dynamodb_table_name

    @property
    def name(self) -> str:
        """The catalog's name."""
        return str(self.client.name)

    @cached_property
    def storage(self) -> Mapping[str, str]:
        """The settings of the tables' storage."""
        return storage_settings(self.client.properties)

    def is_conditional(self, metadata: TableMetadata) -> bool:
        """Always: DynamoDB compares the item's version."""
        del metadata
        return True

    def pointer(self, table: str) -> Pointer:
        """The path and the version in the table's item."""
        action = f"loading {table} from catalog {self.name}"
        with translated(action):
            found = self._dynamodb.get_item(TableName=self._items, ConsistentRead=True, Key=_key(table))
        item = found.get("Item")
        if not item:
            raise TableNotFoundError(f"{action}: there is no such table; check the name, or create it")
        if _PATH not in item:
            raise TableNotFoundError(f"{action}: its item names no metadata file; register one")
        return Pointer(item[_PATH]["S"], item.get("v", {}).get("S", ""), item)

    def new_location(self, table: str) -> str:
        """In the namespace's `default_location`, else in the warehouse: `namespace.db/table`."""
        return new_table_location(self.client, table, ".db", "default_location")

    def admit(self, table: str) -> None:
        """Any name will do."""
        ensure_namespace(self.client, table)

    def tables(self, namespace: str) -> list[str]:
        """The items of a namespace."""
        return listed_tables(self.client, namespace)

    def remove(self, table: str) -> None:
        """Delete the table's item."""
        action = f"dropping {table} from catalog {self.name}"
        try:
            self._dynamodb.delete_item(
                TableName=self._items, Key=_key(table), ConditionExpression="attribute_exists(identifier)"
            )
        except Exception as error:
            refused = refusal(error, action)
            if refused is None:
                raise
            if error_code(error) == _NOT_SAME:
                raise TableNotFoundError(f"{action}: there is no such table; check the name") from error
            raise refused from error

    def rename(self, table: str, name: str) -> None:
        """Move the item to the new key, in one transaction that its version is a condition of."""
        require_namespace(self.client, name)
        pointer = self.pointer(table)
        new = {"updated_at": {"N": str(clock.now_ms())}, "v": {"S": ids.new_uuid()}}
        removal = {
            "TableName": self._items,
            "Key": _key(table),
            "ConditionExpression": "v = :v",
            "ExpressionAttributeValues": {":v": {"S": pointer.version}},
        }
        addition = {
            "TableName": self._items,
            "Item": {**pointer.entry, **_key(name), **new},
            "ConditionExpression": "attribute_not_exists(v)",
        }
        action = f"renaming {table} in catalog {self.name}"
        try:
            self._dynamodb.transact_write_items(TransactItems=[{"Delete": removal}, {"Put": addition}])
        except Exception as error:
            refused = refusal(error, action)
            if refused is None:
                raise
            if error_code(error) != "TransactionCanceledException":
                raise refused from error
            reasons = getattr(error, "response", {}).get("CancellationReasons") or [{}, {}]
            if reasons[-1].get("Code") == "ConditionalCheckFailed":
                raise TableAlreadyExistsError(
                    f"{action}: there is a table {name} already; choose another name"
                ) from error
            raise CommitConflictError(f"{action}: another writer committed meanwhile ({error})") from error

    def insert(self, table: str, change: Change) -> None:
        """Put the table's item where there is none."""
        now = {"N": str(clock.now_ms())}
        item = {
            **_key(table),
            _TYPE: {"S": "ICEBERG"},
            _PATH: {"S": change.metadata_location},
            "created_at": now,
            "updated_at": now,
            "v": {"S": ids.new_uuid()},
        }
        action = f"creating {table} in catalog {self.name}"
        try:
            self._dynamodb.put_item(
                TableName=self._items, Item=item, ConditionExpression="attribute_not_exists(v)"
            )
        except Exception as error:
            refused = refusal(error, action)
            if refused is None:
                raise
            if error_code(error) == _NOT_SAME:
                raise TableAlreadyExistsError(
                    f"{action}: there is such a table already; load it, or choose another name"
                ) from error
            raise refused from error

    def swap(self, table: str, change: Change) -> None:
        """Update the table's item if its version still is the one that was read."""
        assert change.pointer is not None
        if not change.pointer.version:
            raise CommitConflictError(f"{table}: its version was not read yet; refresh and apply it again")
        try:
            self._dynamodb.update_item(
                TableName=self._items,
                Key=_key(table),
                ConditionExpression="v = :v",
                UpdateExpression=_SET,
                ExpressionAttributeNames={"#path": _PATH, "#before": _PREVIOUS, "#type": _TYPE},
                ExpressionAttributeValues={
                    ":v": {"S": change.pointer.version},
                    ":path": {"S": change.metadata_location},
                    ":before": {"S": change.pointer.metadata_location},
                    ":type": {"S": "ICEBERG"},
                    ":now": {"N": str(clock.now_ms())},
                    ":new": {"S": ids.new_uuid()},
                },
            )
        except Exception as error:
            message = f"{table}: catalog {self.name}"
            if error_code(error) == _NOT_SAME:
                raise CommitConflictError(
                    f"{message}: another writer committed first, or the table was dropped"
                ) from error
            refused = refusal(error, message)
            if refused is None:
                raise
            raise refused from error


def _key(table: str) -> dict[str, dict[str, str]]:
    namespace, _ = split_name(table)
    return {"identifier": {"S": table}, "namespace": {"S": namespace}}
