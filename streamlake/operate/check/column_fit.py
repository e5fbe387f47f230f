"""Checks the columns of a stream against those of a table: which are missing, and which types fit.

What fits is decided by the conversions that the writers use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamlake.errors import InvalidOptionError
from streamlake.operate.check.check_points import Points
from streamlake.pipeline.runs.evolution import FULL, EvolutionOptions
from streamlake.pipeline.runs.rejects import REJECT
from streamlake.spec.types.data_types import (
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
)
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.write.rows.conversion import is_convertible

COLUMNS = "columns"
KEY = "key"
_WHOLE_DIGITS: Mapping[type[IcebergType], int] = {IntegerType: 10, LongType: 19}


def check_columns(
    table: Table, stream: Schema, row_kind: str | None, evolution: str | None, on_error: str, points: Points
) -> None:
    """Check that the stream's columns fit the table's."""
    try:
        options = EvolutionOptions.of(evolution, None, table.properties)
    except InvalidOptionError as error:
        points.error(COLUMNS, str(error))
        return
    follows = options.is_on
    given = {part.name: part for part in stream.fields if part.name != row_kind}
    known = {part.name: part for part in table.schema.fields}
    new = [name for name in given if name not in known]
    absent = [name for name, part in known.items() if part.required and name not in given]
    shared = [(name, part.type, known[name].type) for name, part in given.items() if name in known]
    odd = [
        f"{name} is {source} in the stream and {type_} in the table"
        for name, source, type_ in shared
        if not _fits(source, type_)
    ]
    problems = [f"the table has no column {name}" for name in new if not follows]
    problems += [f"the table requires {name}, which the stream does not have" for name in absent]
    problems += [] if follows else odd
    if problems:
        hint = "" if follows or not new else "; schema_evolution='add' gives the table new ones"
        points.error(
            COLUMNS,
            f"the stream does not fit {table.location}: {'; '.join(problems)}. The table's columns are "
            f"{columns_text(table.schema)}{hint}",
        )
        return
    if new or odd:
        added = [f"{name} is added" for name in new]
        points.right(COLUMNS, f"the table will follow the stream: {'; '.join([*added, *odd])}")
    else:
        points.right(COLUMNS, f"the stream's {len(given)} columns are the table's")
    if options.level != FULL:
        _warn_of_narrow(shared, on_error, points)
    null = [name for name, part in known.items() if not part.required and name not in given]
    if null:
        points.note(
            COLUMNS,
            f"the stream does not have {', '.join(null)} of the table: null in every row that it writes",
        )


def warn_of_null_keys(location: str, key: Sequence[NestedField], points: Points) -> None:
    """Warn where a key of an existing table may be null: null is a value there, of one row."""
    names = [part.name for part in key if not part.required]
    if names:
        points.warning(
            KEY,
            f"{', '.join(names)} may be null in {location}: records without it become one row whose key is "
            "null, and replace each other. Make it required in the table, so that such a record is an error "
            "or a reject",
        )


def columns_text(schema: Schema) -> str:
    """The columns with their types, for messages."""
    return ", ".join(f"{part.name} {part.type}" for part in schema.fields)


def _warn_of_narrow(
    shared: Sequence[tuple[str, IcebergType, IcebergType]], on_error: str, points: Points
) -> None:
    narrow = [
        f"{name} is {source} in the stream and {type_} in the table"
        for name, source, type_ in shared
        if is_narrower(type_, source)
    ]
    if narrow:
        outcome = "is rejected" if on_error == REJECT else "stops the stream"
        points.warning(
            COLUMNS,
            f"{'; '.join(narrow)}: a record with a value that does not fit {outcome}. Widen the column, or "
            "make the stream's type the table's",
        )


def is_narrower(type_: IcebergType, source: IcebergType) -> bool:
    """Whether a column of `type_` takes values of `source`, and not all of them."""
    if isinstance(type_, IntegerType):
        return isinstance(source, LongType)
    if not isinstance(type_, DecimalType):
        return False
    whole = type_.precision - type_.scale
    if isinstance(source, DecimalType):
        return source.scale > type_.scale or source.precision - source.scale > whole
    return _WHOLE_DIGITS.get(type(source), 0) > whole


def _fits(source: IcebergType, type_: IcebergType) -> bool:
    """Whether values of one type may fit the other; nested types are left to the first rows."""
    if not (isinstance(source, PrimitiveType) and isinstance(type_, PrimitiveType)):
        return isinstance(source, PrimitiveType) == isinstance(type_, PrimitiveType)
    return is_convertible(source, type_)
