"""Readers that share no code with streamlake: Iceberg's Spark runtime, DuckDB, PyIceberg and ClickHouse (chdb).

Each reads a table directory into a `pyarrow.Table` of its own types; `rows` turns any of those into comparable Python
rows, so that two engines agree exactly when their rows are equal.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tests.helpers.processes import kill_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """`column operator value`, operators `= != < <= > >= is null, is not null, in`, rendered by each engine itself.

    Values: int, float, bool, str, bytes, Decimal, date, datetime (aware = timestamptz), uuid.UUID.
    """

    column: str
    operator: str
    value: Any = None

    def to_sql(self, dialect: str) -> str:
        column = quoted(self.column, dialect)
        if "null" in self.operator:
            return f"{column} {self.operator}"
        if self.operator == "in":
            return f"{column} in ({', '.join(sql_literal(each, dialect) for each in self.value)})"
        return f"{column} {self.operator} {sql_literal(self.value, dialect)}"

    def __str__(self) -> str:
        return f"{self.column} {self.operator} {'' if 'null' in self.operator else repr(self.value)}"


NULL_STRUCT_IS_NULLS = "a null struct is read as a struct of nulls"
NULL_COLLECTION_IS_EMPTY = "a null list or map is read as an empty one"
TEXT_IS_BYTES = "text and binary are one type"


class Reader(Protocol):
    """An engine that reads the table at a directory. `loose` names what its type system cannot tell apart."""

    name: str
    loose: frozenset[str]

    def read(
        self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None
    ) -> pa.Table: ...


class SparkReader:
    """Iceberg's own Java implementation, through its Spark runtime."""

    name = "spark"
    loose = frozenset[str]()

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def read(self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None) -> pa.Table:
        frame = self._session.read.format("iceberg").load(f"file://{location}")
        if where is not None:
            frame = frame.where(where.to_sql("spark"))
        return frame.select(*columns).toArrow() if columns else frame.toArrow()

    def ids_where(self, location: Path, wheres: Sequence[Comparison]) -> list[list[int]]:
        """`id` of the rows that each of `wheres` selects: many scans, each with its own filter, in few jobs."""
        from pyspark.sql.functions import lit

        found: list[list[int]] = [[] for _ in wheres]
        frame = self._session.read.format("iceberg").load(f"file://{location}")
        for start in range(0, len(wheres), 20):
            parts = [
                frame.where(where.to_sql("spark")).select(lit(start + at).alias("number"), "id")
                for at, where in enumerate(wheres[start : start + 20])
            ]
            for row in functools.reduce(lambda left, right: left.union(right), parts).collect():
                found[row["number"]].append(row["id"])
        return found

    def metadata_table(self, location: Path, name: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Rows of the metadata table `name` (files, manifests, snapshots, ...) as dictionaries."""
        frame = self._session.read.format("iceberg").load(f"file://{location}#{name}")
        return [
            row.asDict(recursive=True) for row in (frame.select(*columns) if columns else frame).collect()
        ]


class JavaReader:
    """Iceberg's Java library without Spark's types: its generic records, for tables that Spark cannot show.

    Times, timestamps and UUIDs are taken over as the texts that Java prints.
    """

    name = "java"
    loose = frozenset[str]()

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def read(self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None) -> pa.Table:
        assert where is None, "the generic reader is asked for whole tables"
        jvm = self._session._jvm
        conf = self._session._jsparkSession.sessionState().newHadoopConf()
        table = jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(f"file://{location}")
        fields = [(part.name(), part.type().toString()) for part in table.schema().columns()]
        wanted = [(name, kind) for name, kind in fields if not columns or name in columns]
        records = jvm.org.apache.iceberg.data.IcebergGenerics.read(table).build()
        found: dict[str, list[Any]] = {name: [] for name, _ in wanted}
        rows = records.iterator()
        while rows.hasNext():
            record = rows.next()
            for name, kind in wanted:
                found[name].append(_java_value(record.getField(name), kind))
        records.close()
        return pa.table({name: pa.array(found[name], _java_type(kind)) for name, kind in wanted})


class DuckDbReader:
    """DuckDB with the avro and iceberg extensions that its wheels bring, loaded by path: no download."""

    name = "duckdb"
    loose = frozenset[str]()

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect(config={"threads": "2"})
        for package in ("duckdb_extension_avro", "duckdb_extension_iceberg"):
            self.connection.execute(f"LOAD '{_extension(package)}'")
        self.connection.execute("SET TimeZone = 'UTC'")

    def read(self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None) -> pa.Table:
        return self.sql(
            f"{_select(columns, 'duckdb')} from {self.relation(location)}{_where(where, 'duckdb')}"
        )

    def relation(self, location: Path) -> str:
        """The table function that scans `location`, for a query of one's own."""
        return f"iceberg_scan('{current_metadata_file(location)}')"

    def sql(self, query: str) -> pa.Table:
        return self.connection.execute(query).to_arrow_table()


class PyIcebergReader:
    """PyIceberg, which plans and reads without any catalog."""

    name = "pyiceberg"
    loose = frozenset({NULL_COLLECTION_IS_EMPTY})

    def read(self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None) -> pa.Table:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(str(current_metadata_file(location)))
        options: dict[str, Any] = {"selected_fields": tuple(columns) or ("*",)}
        if where is not None:
            options["row_filter"] = _pyiceberg_filter(where, table.schema())
        return table.scan(**options).to_arrow()


class ChdbReader:
    """ClickHouse's embedded engine in a process of its own: it reads only below its working directory."""

    name = "chdb"
    loose = frozenset({NULL_COLLECTION_IS_EMPTY, NULL_STRUCT_IS_NULLS, TEXT_IS_BYTES})

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, location: Path, columns: Sequence[str] = (), where: Comparison | None = None) -> pa.Table:
        return self.sql(f"{_select(columns, 'chdb')} from {self.relation(location)}{_where(where, 'chdb')}")

    def relation(self, location: Path) -> str:
        """The table function that scans `location`, for a query of one's own."""
        return f"icebergLocal('{location}')"

    def sql(self, query: str) -> pa.Table:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("chdb_worker.py"))],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._count += 1
        target = self._scratch / f"chdb-{self._count}.arrow"
        self._process.stdin.write(json.dumps({"query": query, "target": str(target)}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or b'{"error": "the chdb process died"}')
        if answer.get("error"):
            raise RuntimeError(f"chdb: {answer['error']}")
        with pa.OSFile(str(target)) as source:
            table = pa.ipc.open_stream(source).read_all()
        target.unlink()
        return table

    def close(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            kill_group(self._process)
            self._process = None


_JAVA_TYPES = {
    "long": pa.int64(),
    "uuid": pa.string(),
    "time": pa.time64("us"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
}


def _java_type(kind: str) -> pa.DataType:
    return pa.binary() if kind.startswith("fixed") else _JAVA_TYPES[kind]


def _java_value(value: Any, kind: str) -> Any:
    if value is None or kind == "long" or kind.startswith("fixed"):
        return value
    text = value.toString()
    if kind == "uuid":
        return text
    if kind == "time":
        return datetime.time.fromisoformat(text)
    moment, _, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.timezone.utc).timestamp()
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def current_metadata_file(location: Path) -> Path:
    """The newest `v{N}.metadata.json` (or `.gz.metadata.json`) of a Hadoop table, found by listing."""
    versions = {}
    for path in (location / "metadata").iterdir():
        match = re.fullmatch(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?", path.name)
        if match:
            versions[int(match[1])] = path
    return versions[max(versions)]


def rows(table: pa.Table, key: str | Sequence[str] = (), loose: frozenset[str] = frozenset()) -> list[Row]:
    """Rows of `table` as tuples of plain comparable values, sorted by the `key` columns (by everything when empty).

    Times of day, dates and timestamps become integers in their own unit scaled to nanoseconds (dates: days), with or
    without time zone; NaN becomes a text, -0.0 stays apart from 0.0; UUIDs become text, maps sorted pairs. `loose` (of the
    engine that is compared with) is given to both sides.
    """
    columns = [[_plain(value, loose) for value in column] for column in table.columns]
    result = list(zip(*columns, strict=True)) if columns else []
    names = [key] if isinstance(key, str) else list(key)
    places = [table.column_names.index(name) for name in names] or range(table.num_columns)
    return sorted(result, key=lambda row: [_sortable(row[place]) for place in places])


def _plain(scalar: pa.Scalar, loose: frozenset[str]) -> Any:
    kind = scalar.type
    if isinstance(kind, pa.BaseExtensionType):
        if not scalar.is_valid:
            return None
        return (
            _uuid_text(scalar.value.as_py()) if isinstance(kind, pa.UuidType) else _plain(scalar.value, loose)
        )
    is_map = pa.types.is_map(kind)
    if is_map or pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if not scalar.is_valid:
            return () if NULL_COLLECTION_IS_EMPTY in loose else None
        if is_map:
            pairs = [(_plain(pair["key"], loose), _plain(pair["value"], loose)) for pair in scalar.values]
            return tuple(sorted(pairs, key=_sortable))
        return tuple(_plain(each, loose) for each in scalar.values)
    if pa.types.is_struct(kind):
        if not scalar.is_valid and NULL_STRUCT_IS_NULLS not in loose:
            return None
        parts = [kind.field(index) for index in range(kind.num_fields)]
        return tuple(
            _plain(scalar[index] if scalar.is_valid else pa.scalar(None, part.type), loose)
            for index, part in enumerate(parts)
        )
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _plain(scalar.dictionary[scalar.index.as_py()], loose)
    return _plain_leaf(scalar, loose)


def _plain_leaf(scalar: pa.Scalar, loose: frozenset[str]) -> Any:
    kind = scalar.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return scalar.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    if pa.types.is_date32(kind):
        return scalar.value
    if pa.types.is_date64(kind):
        return scalar.value // 86_400_000
    if pa.types.is_floating(kind):
        return _float(scalar.as_py())
    value = scalar.as_py()
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str) and TEXT_IS_BYTES in loose:
        return value.encode()
    return value


def _uuid_text(value: Any) -> str:
    return str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value))


def _float(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value


def _sortable(value: Any) -> tuple[str, Any]:
    if value is None:
        return ("", 0)
    if isinstance(value, tuple):
        return ("tuple", [_sortable(each) for each in value])
    if isinstance(value, bool | int | float | Decimal):
        return ("number", value)
    return (type(value).__name__, value)


def sql_literal(value: Any, dialect: str) -> str:
    """`value` in the SQL of `dialect` (spark, duckdb, chdb)."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | uuid.UUID):
        text = (
            "'" + str(value).replace("\\", "\\\\" if dialect != "duckdb" else "\\").replace("'", "''") + "'"
        )
        return text
    if isinstance(value, bytes):
        return {
            "spark": f"X'{value.hex()}'",
            "duckdb": f"unhex('{value.hex()}')",
            "chdb": f"unhex('{value.hex()}')",
        }[dialect]
    if isinstance(value, datetime.datetime):
        aware = value.tzinfo is not None
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        if dialect == "chdb":
            return f"toDateTime64('{text}', 6, 'UTC')"
        if dialect == "duckdb":
            return f"TIMESTAMPTZ '{text}+00'" if aware else f"TIMESTAMP '{text}'"
        return f"TIMESTAMP_LTZ '{text}'" if aware else f"TIMESTAMP_NTZ '{text}'"
    if isinstance(value, datetime.date):
        return f"toDate32('{value.isoformat()}')" if dialect == "chdb" else f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        text = format(value, "f")
        if dialect == "chdb":
            return f"toDecimal128('{text}', {max(0, -int(value.as_tuple().exponent))})"
        return {"spark": f"{text}BD"}.get(dialect, text)
    if isinstance(value, float):
        if math.isinf(value) and dialect != "chdb":
            return f"cast('{value!r}' as double)"
        return f"{value!r}D" if dialect == "spark" else f"{value!r}"
    return str(value)


def _pyiceberg_filter(where: Comparison, schema: Any) -> Any:
    from pyiceberg import expressions

    if "null" in where.operator:
        return (expressions.NotNull if "not" in where.operator else expressions.IsNull)(where.column)
    kind = schema.find_type(where.column)
    if where.operator == "in":
        return expressions.In(where.column, [_pyiceberg_value(each, kind) for each in where.value])
    kinds = {"=": "EqualTo", "!=": "NotEqualTo", "<": "LessThan", "<=": "LessThanOrEqual"}
    kinds |= {">": "GreaterThan", ">=": "GreaterThanOrEqual"}
    return getattr(expressions, kinds[where.operator])(where.column, _pyiceberg_value(where.value, kind))


def _pyiceberg_value(value: Any, kind: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=50))
    return value


def quoted(column: str, dialect: str) -> str:
    """The column's name, each part of a dotted one, in the quotes of `dialect`."""
    mark = '"' if dialect == "duckdb" else "`"
    return ".".join(f"{mark}{part}{mark}" for part in column.split("."))


def _select(columns: Iterable[str], dialect: str) -> str:
    return f"select {', '.join(quoted(each, dialect) for each in columns) or '*'}"


def _where(where: Comparison | None, dialect: str) -> str:
    return "" if where is None else f" where {where.to_sql(dialect)}"


def _extension(package: str) -> Path:
    module = import_module(package)
    assert module.__file__ is not None
    return next(Path(module.__file__).parent.rglob("*.duckdb_extension"))
