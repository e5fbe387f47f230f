"""IcebergSource: which rows of a table to read, as a stream or as a batch.

A value, which opens no table. It travels from the user to the driver's enumerator and to what reads, so it is
frozen and can be pickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.options import shown
from streamlake.source.iceberg.iceberg_options import (
    IcebergOptions,
    check_batch_options,
    check_stream_options,
    parse_iceberg_options,
)
from streamlake.spec.expressions.binding import to_expression
from streamlake.spec.expressions.expressions import Expression, Predicate, rewrite
from streamlake.spec.types.schema import Schema

_DIGEST_LETTERS = 16


@dataclass(frozen=True, repr=False)
class IcebergSource:
    """Rows of an Iceberg table, as a stream of what its snapshots bring, or as a batch.

    `location` is a path or URI, or with `catalog` (a name, or a mapping of catalog properties) the table's
    name in it. `filter` is text in the filter language or an expression, `columns` a list of names (None: all
    columns, as the table's schema has them).

    `options` are Iceberg's: starting-strategy, start-snapshot-id, start-snapshot-timestamp, start-tag,
    end-snapshot-id, end-tag, branch, monitor-interval, max-planning-snapshot-count, max-files-per-trigger,
    max-rows-per-trigger, max-bytes-per-trigger, split-size, split-lookback, split-file-open-cost,
    plan-parallelism, watermark-column, read-mode, on-delete, fail-on-data-loss, case-sensitive; of a batch
    also snapshot-id, tag and as-of-timestamp.

    Raises InvalidOptionError when something is unknown or contradictory. Opens no table.
    """

    location: str | os.PathLike[str]
    catalog: str | Mapping[str, str] | None = None
    filter: str | Expression | None = None
    columns: str | Iterable[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "location", os.fspath(self.location))
        if isinstance(self.catalog, Mapping):
            set_(self, "catalog", dict(self.catalog))
        set_(self, "columns", _names(self.columns))
        set_(self, "options", {str(key): _text(value) for key, value in dict(self.options).items()})
        if not self.location:
            raise InvalidOptionError("IcebergSource: the table is missing; give its location or its name")
        if self.columns is not None and not self.columns:
            raise InvalidOptionError(
                "IcebergSource: columns is empty; name at least one column, or leave it out for all of them"
            )
        to_expression(self.filter)
        _ = self.settings

    @cached_property
    def settings(self) -> IcebergOptions:
        """The parsed options."""
        return parse_iceberg_options(self.options)

    @cached_property
    def filter_digest(self) -> str:
        """What tells one filter from another in an offset; "" without a filter."""
        if self.filter is None:
            return ""
        text = f"{to_expression(self.filter)}|{self.settings.case_sensitive}"
        return sha256(text.encode()).hexdigest()[:_DIGEST_LETTERS]

    def as_stream(self, *, can_hold: bool = False) -> IcebergSource:
        """The source itself, if a stream can be read of it. `can_hold`: by a stream that can hold snapshots.

        Raises InvalidOptionError for options of batches, FeatureUnsupportedError for what is not supported.
        """
        check_stream_options(self.options, self.settings)
        if self.settings.hold_snapshots and not can_hold:
            raise FeatureUnsupportedError(
                "IcebergSource: hold-snapshots=true is for IcebergSink.start and pipeline files, where what "
                "is committed is known; keep snapshots for longer than this stream may lag behind "
                "(history.expire.max-snapshot-age-ms, history.expire.min-snapshots-to-keep), and leave the "
                "option out"
            )
        return self

    def as_batch(self) -> IcebergSource:
        """The source itself, if a batch can be read of it. Raises InvalidOptionError for options of
        streams.
        """
        check_batch_options(self.options, self.settings)
        return self

    def filter_for(self, schema: Schema) -> Expression:
        """The filter, not bound yet, with the names that `schema` has: they may differ in case from those
        given.
        """
        expression = to_expression(self.filter)
        if self.settings.case_sensitive:
            return expression
        return rewrite(
            expression,
            lambda leaf: (
                replace(leaf, name=self.name_in(schema, leaf.name)) if isinstance(leaf, Predicate) else leaf
            ),
        )

    def columns_for(self, schema: Schema) -> tuple[str, ...] | None:
        """The columns, with the names that `schema` has."""
        return None if self.columns is None else tuple(self.name_in(schema, name) for name in self.columns)

    def identifiers_for(self, schema: Schema) -> tuple[str, ...] | None:
        """The columns that identify a row, with the names that `schema` has; None: its identifier fields."""
        names = self.settings.identifier_columns
        return None if names is None else tuple(self.name_in(schema, name) for name in names)

    def name_in(self, schema: Schema, name: str) -> str:
        """The name that the schema has for a column that was named; the name itself where it has none.

        Raises InvalidOptionError where it may be one of several that differ in upper and lower case only.
        """
        if self.settings.case_sensitive or schema.find(name) is not None:
            return name
        same = [each for each in schema.names_by_id.values() if each.lower() == name.lower()]
        if len(same) > 1:
            raise InvalidOptionError(
                f"IcebergSource: '{name}' may be any of the columns {', '.join(same)} of {self.location}, "
                "because case-sensitive is false; write it as the table has it"
            )
        return same[0] if same else name

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        parts = [f"IcebergSource({self.location!r}"]
        if self.catalog is not None:
            parts.append(f"catalog={shown(self.catalog)!r}")
        if self.filter is not None:
            parts.append(f"filter={str(self.filter)!r}")
        if self.columns is not None:
            parts.append(f"columns={list(self.columns)!r}")
        return ", ".join([*parts, f"options={shown(self.options)!r})"])


def _names(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
