"""What we write is read row for row by Iceberg's Java library, its Spark runtime, DuckDB, PyIceberg and ClickHouse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamlake.catalog.open import create
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append
from tests.helpers.readers import Reader, rows
from tests.helpers.samples import SAMPLES
from tests.interop.java_tables import create_java_table
from tests.interop.refusals import FORMATS, REFUSALS, Refusal, TableTypes, refused_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("java", "spark", "duckdb", "pyiceberg", "chdb")


@dataclass(frozen=True)
class Case:
    """One table of the matrix."""

    sample: str
    partition_by: tuple[str, ...] = ()
    file_format: str = "parquet"
    version: int = 2

    def __str__(self) -> str:
        return f"{self.sample}-v{self.version}-{self.file_format}-{'+'.join(self.partition_by) or 'unpartitioned'}"


CASES = [
    *(
        Case("primitives", spec, file_format, version)
        for spec in ((), ("day(moment)",), ("bucket(3, id)", "category"))
        for file_format in FORMATS
        for version in (2, 3)
    ),
    *(
        Case("primitives", spec)
        for spec in (
            ("category",),
            ("bucket(4, name)", "bucket(2, huge)", "bucket(2, day)"),
            ("bucket(3, payload)", "bucket(2, moment)"),
            ("truncate(2, name)",),
            ("truncate(10, price)", "flag"),
            ("truncate(100, big)", "truncate(1, payload)"),
            ("year(at)", "void(name)"),
            ("month(day)",),
            ("hour(at)",),
            ("amount",),
            ("total",),
            ("payload",),
            ("moment",),
            ("day", "small"),
        )
    ),
    *(Case("nested", (), file_format, version) for file_format in FORMATS for version in (2, 3)),
    Case("nested", ("person.age", "truncate(1, person.name)")),
    *(Case("exotic", (), file_format, version) for file_format in FORMATS for version in (2, 3)),
    *(Case("identifiers", (), file_format) for file_format in FORMATS),
    Case("identifiers", ("bucket(4, token)", "code")),
    Case("instants_ns", (), version=3),
    Case("exotic", ("token", "bucket(3, clock)", "bucket(2, code)")),
    Case("exotic", ("clock",)),
    *(Case("nanos", (), file_format, 3) for file_format in FORMATS),
    Case("nanos", ("day(at)", "bucket(2, moment)"), version=3),
    Case("far"),
    Case("far", (), "avro"),
    Case("far", ("year(day)", "month(at)")),
]


@cache
def _leaf_types(sample: str) -> dict[str, frozenset[str]]:
    """Per column the types of its leaves, without their parameters."""
    schema = parse_ddl(SAMPLES[sample].ddl)
    found: dict[str, set[str]] = {part.name: set() for part in schema.fields}
    for field_id, part in schema.fields_by_id.items():
        name = schema.name_of(field_id).split(".")[0]
        found[name].add(str(part.type).partition("[")[0].partition("(")[0])
    return {name: frozenset(types) for name, types in found.items()}


def _types(case: Case) -> TableTypes:
    identities = tuple(part for part in case.partition_by if "(" not in part and "." not in part)
    return TableTypes(_leaf_types(case.sample), case.file_format, case.version, identities)


def _readable(engine: str, case: Case) -> list[str]:
    """Columns of the case's sample that the engine can read; none when it cannot read the table."""
    table = _types(case)
    refused = refused_columns(engine, table)
    readable = [name for name in table.columns if name not in refused]
    return readable if readable != ["id"] else []


# Java's own library stands in for Spark where Spark's types end.
MATRIX = [
    (case, engine)
    for case in CASES
    for engine in ENGINES
    if _readable(engine, case) and (engine != "java" or not _readable("spark", case))
]


@cache
def _written(home: Path, case: Case) -> Path:
    """The table of `case`, its rows appended by two commits."""
    location = home / f"t{CASES.index(case)}"
    sample, schema = SAMPLES[case.sample], parse_ddl(SAMPLES[case.sample].ddl)
    table = create(
        str(location),
        schema,
        parse_partition_by(list(case.partition_by), schema),
        format_version=case.version,
        properties={"write.format.default": case.file_format},
    )
    append(table, sample.table.slice(0, 35))
    append(table, sample.table.slice(35))
    return location


@pytest.mark.parametrize(("case", "reader"), MATRIX, indirect=["reader"], ids=str)
def test_rows_are_equal(case: Case, reader: Reader, interop_home: Path) -> None:
    location = _written(interop_home, case)
    everything = SAMPLES[case.sample].table
    names = _readable(reader.name, case)
    found = reader.read(location, [] if names == everything.column_names else names)
    assert found.column_names == names
    expected = _as_read(everything.select(names), found, case)
    assert rows(found, "id", reader.loose) == rows(expected, "id", reader.loose)


def _as_read(expected: pa.Table, found: pa.Table, case: Case) -> pa.Table:
    """`expected` with times of day as the numbers that ClickHouse makes of them: seconds from Parquet, else micros."""
    in_file = set(expected.column_names) - set(case.partition_by)
    for at, part in enumerate(expected.schema):
        if pa.types.is_time(part.type) and pa.types.is_int64(found.schema.field(part.name).type):
            micros = expected.column(at).cast(pa.int64())
            shown = (
                pc.divide(micros, 1_000_000)
                if case.file_format == "parquet" and part.name in in_file
                else micros
            )
            expected = expected.set_column(at, part.name, shown)
    return expected


def test_every_engine_reads_most_of_the_matrix() -> None:
    """Every case has a judge of Java's, every column of every sample in every format at least one engine."""
    for case in CASES:
        judges = {"java", "spark"} & {engine for each, engine in MATRIX if each == case}
        assert bool(judges) != ("code" in case.partition_by), case
    for case in CASES:
        seen = {name for engine in ENGINES for name in _readable(engine, case)}
        assert seen == set(_leaf_types(case.sample)), case
    parquet = [case for case in CASES if case.file_format == "parquet"]
    for engine in ("duckdb", "pyiceberg", "chdb"):
        assert sum(bool(_readable(engine, case)) for case in parquet) >= len(parquet) - 2


@pytest.mark.parametrize(
    ("refusal", "reader"),
    [pytest.param(each, each.engine, id=str(each)) for each in REFUSALS],
    indirect=["reader"],
)
def test_engine_refuses(
    refusal: Refusal, reader: Reader, interop_home: Path, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    """Each hole of the matrix is the engine's own: where SQL can make such a table, Java's tables are refused too."""
    shown = 0
    for case in CASES:
        hit = [each for each in REFUSALS if each.engine == refusal.engine and each.columns(_types(case))]
        if hit == [refusal] and (refusal.identity_partition or not case.partition_by):
            _assert_refused(refusal, reader, _written(interop_home, case), refusal.columns(_types(case)))
            shown += 1
    assert shown
    if not refusal.types or "timestamp" in refusal.types:
        for file_format in refusal.formats:
            table = create_java_table(
                iceberg_spark,
                spark_home,
                "id bigint not null, at timestamp_ntz, moment timestamp",
                properties={"write.format.default": file_format},
                format_version=str(refusal.versions[-1]),
            )
            table.insert(SAMPLES["primitives"].table.select(["id", "at", "moment"]))
            _assert_refused(refusal, reader, table.location, ["at", "moment"])


def _assert_refused(refusal: Refusal, reader: Reader, location: Path, names: list[str]) -> None:
    for name in names:
        columns = [name] if name == "id" else ["id", name]
        if refusal.message:
            # The engines' own classes of errors: the message says which.
            with pytest.raises(Exception, match=refusal.message):
                reader.read(location, columns)
        else:
            found = reader.read(location, columns)[name]
            assert found.null_count == len(found)
