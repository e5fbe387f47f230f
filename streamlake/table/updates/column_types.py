"""The column types that can be written, and the format version that each needs."""

from __future__ import annotations

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.types.data_types import (
    GeographyType,
    GeometryType,
    TimestampNsType,
    TimestamptzNsType,
    UnknownType,
    VariantType,
)
from streamlake.spec.types.schema import Schema

_UNWRITABLE = (UnknownType, VariantType, GeometryType, GeographyType)
_SINCE_V3 = (TimestampNsType, TimestamptzNsType)


def check_writable(schema: Schema, format_version: int) -> None:
    """Check that every column has a type that streamlake writes and the format version has.

    Raises FeatureUnsupportedError for the former, InvalidOptionError for the latter.
    """
    for part in schema.fields_by_id.values():
        name = schema.name_of(part.field_id)
        if isinstance(part.type, _UNWRITABLE):
            raise FeatureUnsupportedError(
                f"column {name}: type {part.type} is not written by streamlake; leave it out or cast it"
            )
        if format_version < 3 and isinstance(part.type, _SINCE_V3):
            raise InvalidOptionError(
                f"column {name}: type {part.type} needs format version 3; set format_version=3"
            )
        if format_version < 3 and part.initial_default is not None:
            raise InvalidOptionError(
                f"column {name}: default values need format version 3; set format_version=3"
            )
