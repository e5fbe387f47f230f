"""What we write is read row for row by Iceberg's Spark runtime, DuckDB, PyIceberg and ClickHouse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.catalog.open import create
from streamlake.spec.ddl import parse_ddl
from streamlake.spec.partition_spec import parse_partition_by
from tests.helpers.batch_write import append
from tests.helpers.readers import Reader, rows
from tests.helpers.samples import SAMPLES

FORMATS = ("parquet", "avro", "orc")
ENGINES = ("spark", "duckdb", "pyiceberg", "chdb")


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
    *(Case("exotic", (), file_format) for file_format in FORMATS),
    Case("exotic", ("bucket(4, token)", "code")),
    *(Case("nanos", (), file_format, 3) for file_format in FORMATS),
    Case("nanos", ("day(at)", "bucket(2, moment)"), version=3),
    Case("far"),
    Case("far", ("year(day)", "month(at)")),
]


def _reads(engine: str, case: Case) -> bool:
    return True


MATRIX = [(case, engine) for case in CASES for engine in ENGINES if _reads(engine, case)]


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
    expected = SAMPLES[case.sample].table
    found = reader.read(location)
    assert found.column_names == expected.column_names
    assert rows(found, "id", reader.loose) == rows(_as(expected, found), "id", reader.loose)


def _as(expected: pa.Table, found: pa.Table) -> pa.Table:
    return expected
