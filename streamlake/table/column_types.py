"""Which columns can be written at all, and from which format version on."""

from __future__ import annotations

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.schema import Schema
from streamlake.spec.types import (
    GeographyType,
    GeometryType,
    TimestampNsType,
    TimestamptzNsType,
    UnknownType,
    VariantType,
)

_UNWRITABLE = (UnknownType, VariantType, GeometryType, GeographyType)
_SINCE_V3 = (TimestampNsType, TimestamptzNsType)


def check_writable(schema: Schema, format_version: int) -> None:
    """Raise FeatureUnsupportedError for a column that is not written here, InvalidOptionError for one that this format
    version does not have."""
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
