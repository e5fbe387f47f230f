"""Names the table of each row: a template filled from fields of the row, or by a user's function.

It runs on the executors, once per decoded batch; Python code runs per distinct value, not per row. Invariant:
the name is a function of the row alone, so a replay sends a row to the same table again.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.missing_fields import missing_field_masks
from streamlake.options import suggestion
from streamlake.records import MISSING_FIELDS, ROW_KIND, RowKind
from streamlake.spec.types.data_types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)
from streamlake.spec.types.schema import Schema
from streamlake.tasks.table_names import PLACEHOLDER, REJECTS_ENDING, ROUTE, ROW, UPWARDS, row_placeholders

Array = Any  # numpy array

RouteFunction = Callable[[pa.RecordBatch], Any]
"""Takes rows and gives an array of as many texts: the table of each row, null where it has none."""

LONGEST_PART = 128
LONGEST_NAME = 1_000
_TYPES = (StringType, IntegerType, LongType, BooleanType, DateType)
_OTHER = re.compile(r"\W")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNROUTED = "unrouted"
_SHOWN = 100
_NO_TABLE = -1
_UNKNOWN = -2


@dataclass(frozen=True)
class RowRoute:
    """How rows of one stream are routed.

    `template` has placeholders for rows, `function` gives the value of `{route}`.
    """

    template: str
    function: RouteFunction | None = None

    @property
    def fields(self) -> Mapping[str, tuple[str, ...]]:
        """Placeholder -> the path of its field."""
        names = [name for name in row_placeholders(self.template) if name != ROUTE]
        return {name: tuple(name[len(ROW) :].split(".")) for name in names}

    def check(self, schema: Schema) -> None:
        """Raise InvalidOptionError where `schema` lacks a field, or a field's values cannot make names."""
        for name, path in self.fields.items():
            dotted = ".".join(path)
            found = schema.find(dotted)
            if found is None or not _is_inside_structs(schema, path):
                near = suggestion(dotted, schema.names_by_id.values())
                hint = (
                    f"did you mean '{{{ROW}{near}}}'?"
                    if near
                    else f"there is {', '.join(schema.column_names)}"
                )
                raise InvalidOptionError(
                    f"the table '{self.template}' has the placeholder '{{{name}}}', and rows have no such "
                    f"field; {hint}"
                )
            if not isinstance(found.type, _TYPES):
                raise InvalidOptionError(
                    f"the table '{self.template}' has the placeholder '{{{name}}}', which is "
                    f"{_kind(found.type)}: tables are named by text, whole numbers, dates and booleans; a "
                    "function (route) can make such a value of it"
                )


@dataclass(frozen=True, eq=False)
class RoutedRows:
    """Where n rows go.

    `codes` (n,) are indexes into `names`, below zero for rows without a table, or whose table is not known;
    `reason` says why for such a row.
    """

    codes: Array
    names: tuple[str, ...]
    reason: Callable[[int], str]

    def places(self) -> list[tuple[str, Array]]:
        """The tables that have rows, each with the ascending indexes of its rows."""
        order = np.argsort(self.codes, kind="stable")
        found, starts = np.unique(self.codes[order], return_index=True)
        ends = [*starts, len(order)][1:]
        return [
            (self.names[code], order[low:high])
            for code, low, high in zip(found.tolist(), starts, ends, strict=True)
            if code >= 0
        ]

    def without_table(self) -> Array:
        """The ascending indexes of the rows that have no table."""
        return np.flatnonzero(self.codes == _NO_TABLE)

    def unknown(self) -> Array:
        """The ascending indexes of rows whose table is not known, as their records lack the field for it."""
        return np.flatnonzero(self.codes == _UNKNOWN)


class RowNames:
    """Applies a RowRoute to the batches of one task; it remembers the name that each value makes."""

    def __init__(self, route: RowRoute) -> None:
        self._route = route
        self._sources = row_placeholders(route.template)
        self._parts: dict[Any, str | None] = {}

    def of(self, rows: pa.RecordBatch) -> RoutedRows:
        """The tables of rows.

        Raises InvalidOptionError where the function fails, or does not give one text for each row.
        """
        codes: Array = np.zeros(rows.num_rows, dtype=np.int64)
        members: list[tuple[str | None, ...]] = [()]
        none: Array = np.zeros(rows.num_rows, dtype=bool)
        columns = {name: self._column(name, rows) for name in self._sources}
        for name, column in columns.items():
            each, texts = self._coded(name, column)
            none |= each < 0
            distinct, codes = np.unique(codes * (len(texts) + 1) + each + 1, return_inverse=True)
            found = [divmod(code, len(texts) + 1) for code in distinct.tolist()]
            members = [(*members[before], texts[at - 1] if at else None) for before, at in found]
        names: dict[str, int] = {}
        numbers = np.array([self._number(parts, names) for parts in members], dtype=np.int64)
        unset = self._unset(rows)
        found_codes = np.where(none, _NO_TABLE, numbers[codes])
        for mask in unset.values():
            found_codes = np.where(mask, _UNKNOWN, found_codes)
        return RoutedRows(found_codes, tuple(names), lambda row: self._reason(columns, unset, row))

    def _unset(self, rows: pa.RecordBatch) -> dict[str, Array]:
        """For placeholders whose fields some records leave out: (n,) bool, the rows of these records."""
        if MISSING_FIELDS not in rows.schema.names:
            return {}
        masks = missing_field_masks(rows.column(MISSING_FIELDS))
        return {name: masks[path[0]] for name, path in self._route.fields.items() if path[0] in masks}

    def _number(self, parts: Sequence[str | None], names: dict[str, int]) -> int:
        """The number of the name that these parts make."""
        if None in parts:
            return _NO_TABLE
        name = self._filled(dict(zip(self._sources, parts, strict=True)))
        return _NO_TABLE if _is_of_rejects(name) else names.setdefault(name, len(names))

    def _filled(self, parts: Mapping[str, str | None]) -> str:
        return PLACEHOLDER.sub(lambda found: parts[found[1]] or "", self._route.template)

    def _column(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        """The values of a placeholder, row by row."""
        return self._called(rows) if name == ROUTE else _field(rows, self._route.fields[name])

    def _coded(self, name: str, column: pa.Array) -> tuple[Array, list[str | None]]:
        """Codes of a placeholder's values, below zero for nulls, and the part of a name for each value."""
        encoded = column.dictionary_encode()
        codes: Array = encoded.indices.cast(pa.int64()).fill_null(_NO_TABLE).to_numpy(zero_copy_only=False)
        return codes, [self._part(name, value) for value in encoded.dictionary.to_pylist()]

    def _part(self, name: str, value: Any) -> str | None:
        """The part of a table's name that a value of one placeholder makes."""
        key = (name, value)
        if key not in self._parts:
            self._parts[key] = _taken_part(value) if name == ROUTE else table_part(value)
        return self._parts[key]

    def _called(self, rows: pa.RecordBatch) -> pa.Array:
        function = self._route.function
        assert function is not None
        named = route_name(function)
        try:
            found = function(rows)
        except Exception as error:
            raise InvalidOptionError(
                f"the route function {named} failed for a batch of {rows.num_rows} rows: "
                f"{type(error).__name__}: {error}"
            ) from error
        try:
            if isinstance(found, pa.ChunkedArray):
                found = found.combine_chunks()
            if not isinstance(found, pa.Array):
                found = pa.array(found, pa.string())
            found = found.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
            raise InvalidOptionError(
                f"the route function {named} is to return an array of texts, one for each row, and returned "
                f"{type(found).__name__}: {error}"
            ) from error
        if len(found) != rows.num_rows:
            raise InvalidOptionError(
                f"the route function {named} returned {len(found)} tables for a batch of {rows.num_rows} "
                "rows; it is to return one for each row, null where a row has none"
            )
        return found

    def _reason(self, columns: Mapping[str, pa.Array], unset: Mapping[str, Array], row: int) -> str:
        for name, mask in unset.items():
            if mask[row]:
                return (
                    f"its field {name[len(ROW) :]}, which names the table, is not there, or was left out by "
                    "the database"
                )
        for name, column in columns.items():
            value = column[row].as_py()
            if name == ROUTE:
                said = (
                    "no table" if value is None else f"{_shown(value)}, which cannot be the name of a table"
                )
                if value is None or _taken_part(value) is None:
                    assert self._route.function is not None
                    return f"the route function {route_name(self._route.function)} gives {said}"
                continue
            if value is None:
                return f"its field {name[len(ROW) :]}, which names the table, is null"
            if table_part(value) is None:
                return (
                    f"its field {name[len(ROW) :]} is {_shown(value)}, of which no table's name can be made"
                )
        name = self._filled({name: self._part(name, column[row].as_py()) for name, column in columns.items()})
        return (
            f"it names the table {_shown(name)}, and names that end in {REJECTS_ENDING} are those of tables "
            "of rejects"
        )


def table_part(value: Any) -> str | None:
    """The part of a table's name that a value makes: lower-case letters, digits and underscores.

    Any other character becomes an underscore. None where the value is too long, or has no letter and no
    digit.
    """
    text = str(value)
    if len(text) > LONGEST_PART:
        return None
    name = _OTHER.sub("_", unicodedata.normalize("NFC", text.strip()).lower())
    if not any(map(str.isalnum, name)) or len(name.encode()) > LONGEST_PART:
        return None
    return name


def of_table(
    routes: Sequence[RowRoute], rows: pa.RecordBatch, table: str, *, keeps_unrouted: bool = False
) -> Array:
    """(n,) bool: the rows that one of the routes sends to `table`.

    With `keeps_unrouted`, rows that none sends anywhere are included.
    """
    found: Array = np.zeros(rows.num_rows, dtype=bool)
    lost: Array = np.full(rows.num_rows, keeps_unrouted, dtype=bool)
    for route in routes:
        routed = RowNames(route).of(rows)
        found |= np.isin(routed.codes, [at for at, name in enumerate(routed.names) if name == table])
        lost &= routed.codes == _NO_TABLE
    return found | lost


def route_columns(routes: Sequence[RowRoute], schema: Schema) -> tuple[str, ...]:
    """The columns of records' values that name tables.

    An update of one moves the row from one table to another.
    """
    paths = [path for route in routes for path in route.fields.values()]
    return tuple(
        dict.fromkeys(path[0] for path in paths if len(path) == 1 and path[0] in schema.column_names)
    )


def left_nothing(rows: pa.RecordBatch, records: Array) -> Array:
    """(n,) bool: rows that an update removes, as it moves them.

    Where such a row names no table, no table has held it. `records` are the indexes of the rows' records.
    """
    if ROW_KIND not in rows.schema.names:
        return np.zeros(rows.num_rows, dtype=bool)
    brought = np.isin(rows.column(ROW_KIND).to_numpy(), (RowKind.INSERT, RowKind.UPDATE_AFTER))
    found: Array = ~brought & np.isin(records, records[brought])
    return found


def unrouted_name(template: str) -> str:
    """The table for rows without one: "lake/events_unrouted" for "lake/events_{row.country}"."""
    return PLACEHOLDER.sub(_UNROUTED, template)


def imported_route(name: str) -> RouteFunction:
    """The function that "package.module:function" names.

    Raises InvalidOptionError where it cannot be imported.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise InvalidOptionError(
            f"route is '{name}'; it names a function as package.module:function, which can be imported on "
            "the driver and on executors"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"route is '{name}', which cannot be imported: {error}. The module has to be installed, or in a "
            "directory of PYTHONPATH, on the driver and on executors"
        ) from error
    if not callable(found):
        raise InvalidOptionError(f"route is '{name}', which is {type(found).__name__} and no function")
    function_found: RouteFunction = found
    return function_found


def route_name(function: RouteFunction) -> str:
    """The name of a function in messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _taken_part(value: str) -> str | None:
    """What a function gave, unchanged; None where it cannot be a table's name."""
    if not value.strip() or len(value.encode()) > LONGEST_NAME:
        return None
    return None if _CONTROL.search(value) or UPWARDS.search(value) or PLACEHOLDER.search(value) else value


def _is_of_rejects(name: str) -> bool:
    return name.rstrip("/").endswith(REJECTS_ENDING)


def _field(rows: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _is_inside_structs(schema: Schema, path: Sequence[str]) -> bool:
    return all(
        (outer := schema.find(".".join(path[:depth]))) is not None and isinstance(outer.type, StructType)
        for depth in range(1, len(path))
    )


def _kind(type_: IcebergType) -> str:
    return "a struct" if isinstance(type_, StructType) else str(type_)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
