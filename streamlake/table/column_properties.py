"""Table properties that name columns, when columns get other names: metrics, Bloom filters, the name mapping.

Invariant: a property goes on meaning the column that it meant, known by its field id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamlake.errors import DataInvalidError
from streamlake.formats.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.spec.schema import Schema

_LOG = logging.getLogger(__name__)

_PREFIXES = (
    "write.metadata.metrics.column.",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.bloom-filter-fpp.column.",
    "write.parquet.stats-enabled.column.",
)


def follow_columns(properties: Mapping[str, str], old: Schema, new: Schema) -> Mapping[str, str]:
    """The properties after the current schema went from `old` to `new`; those of dropped columns are gone."""
    followed: dict[str, str] = {}
    for key, value in properties.items():
        name = _followed(key, old, new)
        if name is not None:
            followed[name] = value
    mapping = properties.get(NAME_MAPPING_PROPERTY)
    if mapping is not None:
        try:
            followed[NAME_MAPPING_PROPERTY] = NameMapping.from_json(mapping).updated(new).to_json()
        except DataInvalidError as error:
            _LOG.warning("the name mapping stays as it is: %s", error)
    return followed


def _followed(key: str, old: Schema, new: Schema) -> str | None:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            part = old.find(key[len(prefix) :])
            if part is None:
                return key
            name = new.name_of(part.field_id)
            return None if name is None else prefix + name
    return key
