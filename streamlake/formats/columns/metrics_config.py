"""Metrics modes of columns: the properties `write.metadata.metrics.*`, resolved to one mode per field id.

Modes are Iceberg's: none, counts, truncate(n), full. Without a configured default, the first
`max-inferred-column-defaults` primitive fields (a struct's own fields before those of its parts) get
truncate(16) and the others none. Columns that the table is sorted by get at least truncate(16).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import Property
from streamlake.spec.types.data_types import NestedField, PrimitiveType, children
from streamlake.spec.types.schema import Schema

_PREFIX = "write.metadata.metrics."
_TRUNCATE = re.compile(r"truncate\(\s*(\d+)\s*\)")

PROPERTIES = (
    Property(
        "write.metadata.metrics.default",
        "truncate(16)",
        "The metrics of a column: `none`, `counts`, `truncate(n)` or `full`.",
    ),
    Property("write.metadata.metrics.column.<column>", "", "The same for one column."),
    Property(
        "write.metadata.metrics.max-inferred-column-defaults",
        "100",
        "Without a configured default, only so many columns of a wide table have metrics.",
    ),
)


@dataclass(frozen=True)
class MetricsMode:
    """What is recorded of a column: nothing, counts, or counts and bounds.

    Bounds have at most `width` code points or bytes.
    """

    counts: bool
    bounds: bool
    width: int | None = None

    def __str__(self) -> str:
        if not self.counts:
            return "none"
        if not self.bounds:
            return "counts"
        return "full" if self.width is None else f"truncate({self.width})"


NONE = MetricsMode(False, False)
COUNTS = MetricsMode(True, False)
FULL = MetricsMode(True, True)
DEFAULT_MODE = MetricsMode(True, True, 16)
_NAMED = {"none": NONE, "counts": COUNTS, "full": FULL}


def parse_metrics_mode(text: str, key: str) -> MetricsMode:
    """The mode that `text` names; `key` is the property it came from. Raises InvalidOptionError."""
    folded = text.strip().lower()
    if folded in _NAMED:
        return _NAMED[folded]
    match = _TRUNCATE.fullmatch(folded)
    if match and int(match.group(1)) > 0:
        return MetricsMode(True, True, int(match.group(1)))
    raise InvalidOptionError(
        f"table property {key}={text!r} is not a metrics mode; use none, counts, truncate(16) or full"
    )


@dataclass(frozen=True)
class MetricsOptions:
    """The parsed properties; `columns` holds (dotted name, mode), `sorted_columns` dotted names."""

    default: MetricsMode | None = None
    columns: tuple[tuple[str, MetricsMode], ...] = ()
    max_inferred: int = 100
    sorted_columns: tuple[str, ...] = ()

    @staticmethod
    def from_properties(properties: Mapping[str, str], sorted_columns: Iterable[str] = ()) -> MetricsOptions:
        """Parse the metrics properties of a table. Raises InvalidOptionError for an invalid value."""
        default = properties.get(f"{_PREFIX}default")
        limit_key = f"{_PREFIX}max-inferred-column-defaults"
        limit = str(properties.get(limit_key, "100"))
        if not limit.isdigit():
            raise InvalidOptionError(
                f"table property {limit_key}={limit!r} is not a count; set it to one or unset it"
            )
        column_prefix = f"{_PREFIX}column."
        return MetricsOptions(
            default=None if default is None else parse_metrics_mode(default, f"{_PREFIX}default"),
            columns=tuple(
                (key[len(column_prefix) :], parse_metrics_mode(text, key))
                for key, text in sorted(properties.items())
                if key.startswith(column_prefix)
            ),
            max_inferred=int(limit),
            sorted_columns=tuple(sorted_columns),
        )

    def modes(self, schema: Schema) -> dict[int, MetricsMode]:
        """The mode of every primitive field of the schema, by field id."""
        ids = list(_primitive_ids(schema.fields))
        if self.default is not None or len(schema.fields_by_id) <= self.max_inferred:
            fallback = DEFAULT_MODE if self.default is None else self.default
            modes = dict.fromkeys(ids, fallback)
        else:
            chosen = set(ids[: self.max_inferred])
            modes = {field_id: DEFAULT_MODE if field_id in chosen else NONE for field_id in ids}
        for name in self.sorted_columns:
            field = schema.find(name)
            if field is not None and not modes.get(field.field_id, FULL).bounds:
                modes[field.field_id] = DEFAULT_MODE
        for name, mode in self.columns:
            field = schema.find(name)
            if field is not None and field.field_id in modes:
                modes[field.field_id] = mode
        return modes


def _primitive_ids(fields: tuple[NestedField, ...]) -> Iterator[int]:
    for part in fields:
        if isinstance(part.type, PrimitiveType):
            yield part.field_id
    for part in fields:
        yield from _primitive_ids(children(part.type))
