"""Iceberg types as the types of a DataFrame: what Spark lacks is text, or refused by name.

A uuid becomes text, as in Iceberg's own Spark source. `time` and nanoseconds have no type in Spark that holds
them without loss, and variant and geometry are not read here at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType as SparkStruct

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.data_types import (
    BinaryType,
    FixedType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestamptzNsType,
    TimeType,
    UUIDType,
    VariantType,
)
from streamlake.spec.types.schema import Schema


@dataclass(frozen=True)
class FrameTypes:
    """Gives the fields of a schema types that Spark has.

    Errors begin with `where`, name the column, and end with `advice`. `fixed_as_binary`: the length of a
    fixed is dropped, as it is in Spark; where rows are still to be checked against it, it is kept.
    """

    where: str
    advice: str
    fixed_as_binary: bool = False

    def fields(self, schema: Schema) -> tuple[NestedField, ...]:
        """The fields of a DataFrame. Raises FeatureUnsupportedError for a type that Spark lacks."""
        return tuple(self._field(part, part.name) for part in schema.fields)

    def _field(self, part: NestedField, column: str) -> NestedField:
        return replace(part, type=self._type(part.type, column))

    def _type(self, type_: IcebergType, column: str) -> IcebergType:
        if isinstance(type_, UUIDType):
            return StringType()
        if isinstance(type_, FixedType) and self.fixed_as_binary:
            return BinaryType()
        if isinstance(type_, (TimeType, TimestampNsType, TimestamptzNsType)):
            raise self._refused(type_, column, "which Spark has no type for")
        if isinstance(type_, (VariantType, GeometryType, GeographyType)):
            raise self._refused(type_, column, "which is not read here")
        if isinstance(type_, StructType):
            return StructType(tuple(self._field(part, f"{column}.{part.name}") for part in type_.fields))
        if isinstance(type_, ListType):
            return replace(type_, element_type=self._type(type_.element_type, column))
        if isinstance(type_, MapType):
            return replace(
                type_,
                key_type=self._type(type_.key_type, column),
                value_type=self._type(type_.value_type, column),
            )
        return type_

    def _refused(self, type_: IcebergType, column: str, why: str) -> FeatureUnsupportedError:
        return FeatureUnsupportedError(f"{self.where}: column '{column}' is {type_}, {why}; {self.advice}")


def frame_schema(schema: Schema, *, prefer_timestamp_ntz: bool = False) -> SparkStruct:
    """The Spark schema of a schema with types that Spark has.

    `prefer_timestamp_ntz`: a timestamp without a time zone has none in Spark either.
    """
    return from_arrow_schema(
        schema_to_arrow(schema, field_ids=False), prefer_timestamp_ntz=prefer_timestamp_ntz
    )
