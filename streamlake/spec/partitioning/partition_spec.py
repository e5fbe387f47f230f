"""Partition specs: how the partition tuple of a row is computed (spec: Partitioning)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.spec.partitioning.transforms import (
    Identity,
    Transform,
    UnknownTransform,
    Void,
    parse_transform,
)
from streamlake.spec.types.data_types import IcebergType, NestedField, StringType, StructType
from streamlake.spec.types.schema import Schema

FIRST_PARTITION_FIELD_ID = 1000


@dataclass(frozen=True)
class PartitionField:
    """One part of the partition tuple: a transform of one source column.

    `former_source` is the type of a source column that the table no longer has: files of
    the spec still have values of it.
    """

    source_id: int
    field_id: int
    name: str
    transform: Transform
    extra: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)
    former_source: IcebergType | None = field(default=None, compare=False, hash=False, repr=False)

    def source_type(self, schema: Schema) -> IcebergType:
        """The type of the source column; string when it is not known any more."""
        source = schema.field(self.source_id)
        return source.type if source is not None else self.former_source or StringType()

    def __str__(self) -> str:
        return f"{self.name}: {self.transform}({self.source_id})"


@dataclass(frozen=True)
class PartitionSpec:
    """The fields of the partition tuple, in order, with the id that files and manifests refer to."""

    spec_id: int
    fields: tuple[PartitionField, ...] = ()

    @property
    def is_unpartitioned(self) -> bool:
        """Whether no field divides rows: there are no fields, or all are void."""
        return all(isinstance(part.transform, Void) for part in self.fields)

    @property
    def highest_field_id(self) -> int:
        """The highest field id, 999 without fields."""
        return max((part.field_id for part in self.fields), default=FIRST_PARTITION_FIELD_ID - 1)

    def partition_type(self, schema: Schema) -> StructType:
        """The struct type of the partition tuple. Every field is optional."""
        return _partition_type(self, schema, tuple([part.former_source for part in self.fields]))

    def with_former_sources(self, types: Mapping[int, IcebergType]) -> PartitionSpec:
        """The spec with the types (by source id) of source columns that the table no longer has."""
        return replace(
            self,
            fields=tuple(
                [
                    replace(part, former_source=types.get(part.source_id, part.former_source))
                    for part in self.fields
                ]
            ),
        )

    def identity_values(self, partition: tuple[Any, ...]) -> dict[int, Any]:
        """The values of whole source columns in a partition tuple, by field id, without nulls."""
        return {
            part.source_id: value
            for part, value in zip(self.fields, partition, strict=True)
            if isinstance(part.transform, Identity) and value is not None
        }

    def partition_path(self, partition: tuple[Any, ...], schema: Schema) -> str:
        """The hive-style path of a partition tuple ("ts_day=2024-01-01"); empty when unpartitioned."""
        parts = []
        for part, value in zip(self.fields, partition, strict=True):
            text = part.transform.human(value, part.source_type(schema))
            parts.append(f"{_escaped(part.name)}={_escaped(text)}")
        return "/".join(parts)


def _escaped(text: str) -> str:
    """URL-encoded as by Java's URLEncoder, which keeps `*` and escapes `~`."""
    return quote_plus(text, safe="*").replace("~", "%7E")


@lru_cache(maxsize=256)
def _partition_type(
    spec: PartitionSpec, schema: Schema, former: tuple[IcebergType | None, ...]
) -> StructType:
    del former  # specs that differ only in former sources compare as equal
    return StructType(
        tuple(
            [
                NestedField(part.field_id, part.name, part.transform.result_type(part.source_type(schema)))
                for part in spec.fields
            ]
        )
    )


UNPARTITIONED = PartitionSpec(0)

_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)\s*")
_ALIASES = {
    "years": "year",
    "months": "month",
    "days": "day",
    "hours": "hour",
    "date": "day",
    "date_hour": "hour",
}
_SUFFIXES = {
    "bucket": "bucket",
    "truncate": "trunc",
    "year": "year",
    "month": "month",
    "day": "day",
    "hour": "hour",
}


def parse_transform_call(text: str, schema: Schema, option: str) -> tuple[NestedField, Transform, str]:
    """A column or transform call such as "day(ts)", "bucket(16, id)", "truncate(name, 4)".

    Returns the source field, the transform, and Iceberg's name for such a partition field. Raises
    InvalidOptionError, which names `option`.
    """
    call = _CALL.fullmatch(text)
    kind, width, column = "identity", None, text.strip().strip("`")
    if call:
        kind = _ALIASES.get(call[1].lower(), call[1].lower())
        width, column = call[2] or call[4], call[3].strip().strip("`")
    source = schema.find(column)
    if source is None:
        raise InvalidOptionError(
            f"{option}: '{text}' names the column '{column}', which the schema does not have; its columns "
            f"are {', '.join(schema.column_names)}"
        )
    transform = parse_transform(f"{kind}[{width}]" if width else kind)
    if isinstance(transform, UnknownTransform):
        raise InvalidOptionError(
            f"{option}: '{text}' is not understood; write a column, or one of year(c), month(c), day(c), "
            "hour(c), bucket(n, c), truncate(w, c), void(c)"
        )
    if not transform.accepts(source.type):
        raise InvalidOptionError(
            f"{option}: {transform} cannot be applied to '{column}', which is a {source.type}"
        )
    suffix = _SUFFIXES.get(kind)
    name = column if isinstance(transform, Identity) else f"{column}_{suffix or 'null'}"
    return source, transform, name


def parse_partition_by(parts: Iterable[str], schema: Schema, spec_id: int = 0) -> PartitionSpec:
    """A partition spec from texts such as `["day(ts)", "bucket(16, id)", "category"]`.

    Raises InvalidOptionError.
    """
    texts = [parts] if isinstance(parts, str) else list(parts)
    fields: list[PartitionField] = []
    for at, text in enumerate(texts):
        source, transform, name = parse_transform_call(text, schema, "partition_by")
        if any(name == other.name for other in fields):
            raise InvalidOptionError(
                f"partition_by: '{text}' would be a second partition field named '{name}'"
            )
        fields.append(PartitionField(source.field_id, FIRST_PARTITION_FIELD_ID + at, name, transform))
    return PartitionSpec(spec_id, tuple(fields))


def spec_from_json(obj: dict[str, Any]) -> PartitionSpec:
    """A partition spec of table metadata (Appendix C).

    Version 1 fields without field-id are numbered from 1000.
    """
    return PartitionSpec(obj["spec-id"], fields_from_json(obj["fields"]))


_FIELD_KEYS = {"source-id", "source-ids", "field-id", "name", "transform"}


def fields_from_json(objs: list[dict[str, Any]]) -> tuple[PartitionField, ...]:
    """The partition fields of a spec's JSON. Raises DataInvalidError for a field without a source column."""
    fields = []
    for at, obj in enumerate(objs):
        source_ids = obj.get("source-ids") or []
        source_id = obj.get("source-id", source_ids[0] if source_ids else None)
        if source_id is None:
            raise DataInvalidError(f"the partition field {obj.get('name')!r} names no source column")
        fields.append(
            PartitionField(
                source_id=source_id,
                field_id=obj.get("field-id", FIRST_PARTITION_FIELD_ID + at),
                name=obj["name"],
                transform=parse_transform(obj["transform"]),
                extra={key: value for key, value in obj.items() if key not in _FIELD_KEYS}
                | ({"source-ids": source_ids} if len(source_ids) > 1 else {}),
            )
        )
    return tuple(fields)


def fields_to_json(spec: PartitionSpec) -> list[dict[str, Any]]:
    """The JSON of a spec's fields, the inverse of `fields_from_json`."""
    return [
        {
            "name": part.name,
            "transform": str(part.transform),
            "source-id": part.source_id,
            "field-id": part.field_id,
            **part.extra,
        }
        for part in spec.fields
    ]


def spec_to_json(spec: PartitionSpec) -> dict[str, Any]:
    """The JSON object of a spec, the inverse of `spec_from_json`."""
    return {"spec-id": spec.spec_id, "fields": fields_to_json(spec)}
