"""Decodes stored manifests and manifest lists to values in the order of the dataclasses that they become.

The input is what fastavro decodes with a file's own schema. Stored fields are found by id, and by name only
where they have no id, because writers have named some of them differently over the years. Invariant: each
distinct schema is prepared once per process, and statistics that are not requested are never decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from fastavro.schema import SchemaParseException, UnknownType, expand_schema

from streamlake.errors import DataInvalidError
from streamlake.formats.avro.avro_container import AvroFile, ParsedSchema, parse_schema
from streamlake.formats.avro.avro_schemas import avro_name
from streamlake.formats.manifests.manifest_schemas import (
    DATA_FILE_ID,
    DATA_FILE_IDS,
    ENTRY_IDS,
    MANIFEST_FILE_IDS,
    PARTITION_ID,
    SUMMARY_IDS,
)
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.values import scaled

Json = Any
Convert = Callable[[Any], Any]

_STATS_FIELD_IDS = frozenset({108, 109, 110, 137, 125, 128})

# In the order of the fields of the dataclass that a record becomes.
_ENTRY_FIELD_IDS = (0, 1, 3, 4, DATA_FILE_ID)
_DATA_FILE_FIELD_IDS = (
    *(134, 100, 101, 141, PARTITION_ID, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140),
    *(142, 143, 144, 145),
)
_MANIFEST_FILE_FIELD_IDS = (
    *(500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519, 520),
)
_SUMMARY_FIELD_IDS = tuple(SUMMARY_IDS.values())
_PATH_ID, _SUMMARIES_ID, _LIST_PATH_ID = 100, 507, 500
_PARTITION = _DATA_FILE_FIELD_IDS.index(PARTITION_ID)
_SUMMARIES = _MANIFEST_FILE_FIELD_IDS.index(_SUMMARIES_ID)
_MAPS = tuple(at for at, part in enumerate(_DATA_FILE_FIELD_IDS) if part in _STATS_FIELD_IDS)

_SLOTS = [part.name for part in fields(DataFile)]
CONTENT = _SLOTS.index("content")
FILE_FORMAT = _SLOTS.index("file_format")
RECORD_COUNT = _SLOTS.index("record_count")
FIRST_ROW_ID = _SLOTS.index("first_row_id")
_SPEC_ID = _SLOTS.index("spec_id")
_SPLIT_OFFSETS = _SLOTS.index("split_offsets")
_EQUALITY_IDS = _SLOTS.index("equality_ids")
_NO_STATISTICS: dict[str, Any] = {_SLOTS[at]: None for at in _MAPS}
_CONTENTS = tuple(FileContent)
_FORMATS = {name.upper(): name for name in ("parquet", "avro", "orc", "puffin")}

assert len(_DATA_FILE_FIELD_IDS) == len(fields(DataFile))


@dataclass(frozen=True, eq=False)
class StoredManifest:
    """How the entries of a stored manifest are read: the names of its fields, None for missing ones."""

    _parsed: ParsedSchema
    _entry: tuple[str | None, ...]
    _data_file: tuple[str | None, ...]
    _partition: tuple[tuple[str | None, Convert | None], ...]

    def entries(self, file: AvroFile) -> Iterator[list[Any]]:
        """Each entry as [status, snapshot id, sequence number, file sequence number, values of DataFile].

        The values of DataFile are a list in the order of its fields.
        """
        for record in file.records(self._parsed):
            *head, data_file = [record.get(name) for name in self._entry]
            yield [*head, self.file_values(data_file)]

    def parts(self, schema_text: str) -> tuple[Json, Json, Json]:
        """The schemas of the parts of an entry: head, `data_file`, and `data_file` without statistics."""
        entry = json.loads(schema_text)
        *head, data_file = entry["fields"]
        return {**entry, "fields": head}, data_file["type"], _pruned(data_file["type"])

    def file_values(self, record: Any) -> list[Any]:
        """The stored values of a `data_file` record in the order of DataFile's fields."""
        values: list[Any] = [record.get(name) for name in self._data_file]
        for at in _MAPS:
            pairs = values[at]
            if pairs is not None:
                values[at] = {pair["key"]: pair["value"] for pair in pairs}
        stored = values[_PARTITION]
        values[_PARTITION] = tuple(
            [_converted(stored.get(name), convert) for name, convert in self._partition]
        )
        return values


@dataclass(frozen=True, eq=False)
class StoredManifestList:
    """How a stored manifest list is read: the names of its fields, None for missing ones."""

    _parsed: ParsedSchema
    _manifest: tuple[str | None, ...]
    _summary: tuple[str | None, ...]

    def manifests(self, file: AvroFile) -> Iterator[list[Any]]:
        """Each manifest as the list of ManifestFile's fields; its summaries are lists of their fields."""
        for record in file.records(self._parsed):
            values = [record.get(name) for name in self._manifest]
            if values[_SUMMARIES] is not None:
                values[_SUMMARIES] = [
                    [summary.get(name) for name in self._summary] for summary in values[_SUMMARIES]
                ]
            yield values


def file_of(values: list[Any], spec_id: int) -> DataFile:
    """The DataFile of stored values. Raises IndexError for an unknown content."""
    values[CONTENT] = _CONTENTS[values[CONTENT] or 0]
    values[FILE_FORMAT] = _FORMATS.get(values[FILE_FORMAT]) or values[FILE_FORMAT].lower()
    values[_SPEC_ID] = spec_id
    if values[_SPLIT_OFFSETS] is not None:
        values[_SPLIT_OFFSETS] = tuple(values[_SPLIT_OFFSETS])
    if values[_EQUALITY_IDS] is not None:
        values[_EQUALITY_IDS] = tuple(values[_EQUALITY_IDS])
    return DataFile(*values)


def without_statistics(file: DataFile) -> DataFile:
    """The file without its column statistics."""
    return replace(file, **_NO_STATISTICS)


@lru_cache(maxsize=256)
def stored_manifest(
    schema_text: str, partition_fields: tuple[tuple[int, str], ...], *, with_stats: bool
) -> StoredManifest:
    """How manifests with this schema are read.

    Partition values come in the order of `partition_fields` (id, name). Raises DataInvalidError when the text
    is not the schema of a manifest.
    """
    try:
        schema = json.loads(schema_text)
        entry = _Names(expand_schema(schema), ENTRY_IDS)
        data_file = entry.inner(DATA_FILE_ID, DATA_FILE_IDS)
        data_file.require(_PATH_ID)
        partition = data_file.inner(PARTITION_ID, {avro_name(name): part for part, name in partition_fields})
        wanted = None if with_stats else _without_stats(schema)
        return StoredManifest(
            parse_schema(schema, wanted),
            entry.of(_ENTRY_FIELD_IDS),
            data_file.of(_DATA_FILE_FIELD_IDS),
            tuple(
                [(partition.name(part), _conversion(partition.type(part))) for part, _ in partition_fields]
            ),
        )
    except _NONSENSE as cause:
        raise DataInvalidError(f"its Avro schema makes no sense ({cause!r})") from cause


def partition_fields(schema_text: str) -> dict[int, Json]:
    """The Avro types of a manifest's partition values, by partition field id.

    Raises DataInvalidError for a text that is not the schema of a manifest.
    """
    try:
        entry = _Names(expand_schema(json.loads(schema_text)), ENTRY_IDS)
        partition = entry.inner(DATA_FILE_ID, DATA_FILE_IDS).type(PARTITION_ID)
        return {
            int(part["field-id"]): _present(part["type"])
            for part in _present(partition)["fields"]
            if "field-id" in part
        }
    except _NONSENSE as cause:
        raise DataInvalidError(f"its Avro schema makes no sense ({cause!r})") from cause


@lru_cache(maxsize=64)
def stored_manifest_list(schema_text: str) -> StoredManifestList:
    """How manifest lists with this schema are read.

    Raises DataInvalidError when the text is not the schema of a manifest list.
    """
    try:
        schema = json.loads(schema_text)
        manifest = _Names(expand_schema(schema), MANIFEST_FILE_IDS)
        manifest.require(_LIST_PATH_ID)
        summary: tuple[str | None, ...] = ()
        if manifest.name(_SUMMARIES_ID) is not None:
            summary = _Names(_present(manifest.type(_SUMMARIES_ID))["items"], SUMMARY_IDS).of(
                _SUMMARY_FIELD_IDS
            )
        return StoredManifestList(parse_schema(schema), manifest.of(_MANIFEST_FILE_FIELD_IDS), summary)
    except _NONSENSE as cause:
        raise DataInvalidError(f"its Avro schema makes no sense ({cause!r})") from cause


_NONSENSE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    SchemaParseException,
    UnknownType,
)


class _Names:
    """The fields of a stored record by id; `ids` replaces ids that a writer left out."""

    def __init__(self, record: Json, ids: Mapping[str, int]) -> None:
        record = _present(record)
        self._fields = {_field_id(part, ids): part for part in record["fields"]}

    def name(self, field_id: int) -> str | None:
        part = self._fields.get(field_id)
        return None if part is None else part["name"]

    def type(self, field_id: int) -> Json:
        part = self._fields.get(field_id)
        return None if part is None else part["type"]

    def of(self, field_ids: tuple[int, ...]) -> tuple[str | None, ...]:
        return tuple([self.name(part) for part in field_ids])

    def require(self, field_id: int) -> None:
        if field_id not in self._fields:
            raise ValueError(f"there is no field {field_id}")

    def inner(self, field_id: int, ids: Mapping[str, int]) -> _Names:
        self.require(field_id)
        return _Names(self.type(field_id), ids)


def _present(schema: Json) -> Json:
    """The type of an optional field's values that are not null."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return others[0] if others else "null"
    return schema


def _without_stats(schema: Json) -> Json:
    """The schema for a reader that skips column statistics."""
    entry = dict(schema)
    entry["fields"] = [
        {**part, "type": _pruned(part["type"])} if _field_id(part, ENTRY_IDS) == DATA_FILE_ID else part
        for part in schema["fields"]
    ]
    return entry


def _pruned(data_file: Json) -> Json:
    kept = [part for part in data_file["fields"] if _field_id(part, DATA_FILE_IDS) not in _STATS_FIELD_IDS]
    return {**data_file, "fields": kept}


def _field_id(part: Json, ids: Mapping[str, int]) -> int:
    return int(part.get("field-id", ids.get(part["name"], -1)))


def _conversion(schema: Json) -> Convert | None:
    """The function that converts a stored partition value to streamlake's domain; None if it stays."""
    stored = _present(schema)
    if not isinstance(stored, dict):
        return None
    if isinstance(stored["type"], dict):
        return _conversion(stored["type"])
    logical = stored.get("logicalType")
    if logical == "decimal":
        scale = int(stored.get("scale", 0))
        return lambda raw: scaled(int.from_bytes(raw, "big", signed=True), scale)
    if logical == "uuid":
        return lambda raw: UUID(raw) if isinstance(raw, str) else UUID(bytes=raw)
    return None


def _converted(value: Any, convert: Convert | None) -> Any:
    return value if convert is None or value is None else convert(value)
