"""Position deletes, deletion vectors and equality deletes that we write are applied row for row by the other engines."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import ids, load_table
from streamlake.catalog.open import create, open_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.deletes.position_deletes import Positions
from streamlake.formats.readers import read_data_file
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.equality_deletes import equality_delete_writer
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers.batch_write import append, write_files
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.readers import DuckDbReader, Reader, Row, rows
from tests.helpers.spark import ICE_CATALOG
from tests.interop.refusals import DELETE_REFUSALS, DeleteRefusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("spark", "duckdb", "pyiceberg", "chdb")
DDL = "n long not null, name string, code long, price decimal(9,2), day date, ratio double, part string"
KEYS = {
    "name+code": ("name", "code"),
    "price": ("price",),
    "day+name": ("day", "name"),
    "ratio": ("ratio",),
}
RATIOS = (0.0, -0.0, float("nan"), 1.5, None, -2.25, float("inf"))

Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One table. `deletes` are "positions" and "keys"; `version` says in which form positions are written."""

    version: int
    deletes: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    file_format: str = "parquet"
    granularity: str = "file"
    key: str = "name+code"
    whole_row: bool = False
    evolved: bool = False
    null_parts: bool = True

    @property
    def null_partitions(self) -> bool:
        """Whether partition values are null in places."""
        return bool(self.partition_by) and (self.null_parts or self.partition_by != ("part",))

    @property
    def kinds(self) -> tuple[str, ...]:
        """How the deletes are written: positions, vectors, keys."""
        return tuple("vectors" if kind == "positions" and self.version > 2 else kind for kind in self.deletes)

    def __str__(self) -> str:
        words = [f"v{self.version}", *self.kinds, *self.partition_by, self.file_format, self.granularity]
        words += [self.key] if "keys" in self.deletes else []
        words += ["whole"] if self.whole_row else []
        words += ["evolved"] if self.evolved else []
        return "-".join([*words, *([] if self.null_parts else ["no_null_parts"])])


SPECS: tuple[tuple[str, ...], ...] = ((), ("part",), ("bucket(3, code)", "truncate(1, name)"))
CASES = [
    *(Case(2, ("positions",), spec, granularity=each) for spec in SPECS for each in ("file", "partition")),
    *(Case(2, ("positions",), ("part",), file_format=each) for each in ("avro", "orc")),
    *(Case(3, ("positions",), spec) for spec in SPECS),
    *(Case(version, ("keys",), spec) for spec in SPECS for version in (2, 3)),
    *(Case(version, ("keys",), ("part",), null_parts=False) for version in (2, 3)),
    *(Case(2, ("keys",), ("part",), file_format=each) for each in ("avro", "orc")),
    *(Case(2, ("keys",), key=each) for each in KEYS if each != "name+code"),
    Case(2, ("keys",), ("part",), whole_row=True, null_parts=False),
    *(
        Case(version, ("positions", "keys"), ("part",), key="day+name", null_parts=nulls)
        for version in (2, 3)
        for nulls in (False, True)
    ),
    *(Case(version, ("positions",), ("bucket(3, code)",), evolved=True) for version in (2, 3)),
    Case(2, ("keys",), ("bucket(3, code)",), evolved=True),
]


def _refusal(engine: str, case: Case) -> DeleteRefusal | None:
    for refusal in DELETE_REFUSALS:
        if refusal.holds(
            engine,
            case.kinds,
            case.file_format,
            null_partitions=case.null_partitions,
            evolved=case.evolved,
        ):
            return refusal
    return None


MATRIX = [(case, engine) for case in CASES for engine in ENGINES if not _refusal(engine, case)]


def _made(case: Case, first: int, count: int) -> list[Values]:
    """Rows whose keys come back in every stretch of rows, nulls among them."""
    return [
        {
            "n": n,
            "name": None if n % 11 == 3 else f"name{n % 7}",
            "code": None if n % 13 == 5 else n % 9,
            "price": None if n % 17 == 1 else Decimal(n % 5) / 4,
            "day": None if n % 19 == 2 else datetime.date(1969, 12, 25) + datetime.timedelta(n % 14),
            "ratio": RATIOS[n % len(RATIOS)],
            "part": None if case.null_parts and n % 4 == 3 else "abc"[n % 3],
        }
        for n in range(first, first + count)
    ]


class Stream:
    """A table that is written to, and the rows that it must hold."""

    def __init__(self, table: Table, case: Case) -> None:
        self.table = table
        self.case = case
        self.rows: list[Values] = []
        self.positions: dict[DeletedFile, Positions] = {}
        self.vectors: dict[str, DataFile] = {}

    def target(self) -> WriteTarget:
        self.table.refresh()
        return WriteTarget.for_table(
            self.table.metadata,
            io=self.table.io,
            job_id="job",
            checkpoint_id=0,
            operation_uuid=ids.new_uuid(),
        )

    def arrow(self, values: list[Values]) -> pa.Table:
        return pa.Table.from_pylist(values, schema=schema_to_arrow(self.table.schema))

    def append(self, values: list[Values]) -> None:
        append(self.table, self.arrow(values))
        self.rows += values

    def delete_positions(self, doomed: Callable[[int], bool]) -> None:
        """Rows go by the place where they are; a deletion vector takes the place of the one before it."""
        delta, target = RowDelta(self.table), self.target()
        found = {
            DeletedFile(file.file_path, file.spec_id, file.partition): positions
            for file in live_data_files(self.table)
            if len(positions := np.flatnonzero([doomed(n) for n in self._numbers(file)]))
        }
        output = OutputFiles(target, 0, 0, 0)
        if self.case.version > 2:
            for place, positions in found.items():
                self.positions[place] = np.union1d(self.positions.get(place, positions), positions)
                if place.file_path in self.vectors:
                    delta.remove_deletes(self.vectors[place.file_path])
            files = write_deletion_vectors(target, output, {place: self.positions[place] for place in found})
            self.vectors.update({file.referenced_data_file or "": file for file in files})
        else:
            files = write_position_deletes(target, output, found)
        self._commit(delta, files)
        self.rows = [row for row in self.rows if not doomed(row["n"])]

    def delete_keys(self, doomed: Callable[[Values], bool], and_write: list[Values]) -> None:
        """Rows go by their key, in every spec that there are files of; rows of the same commit stay."""
        delta, target = RowDelta(self.table), self.target()
        names = KEYS[self.case.key]
        schema = self.table.schema
        key_ids = [part.field_id for name in names if (part := schema.find(name)) is not None]
        output = OutputFiles(target, 0, 0, 0)
        files: list[DataFile] = []
        dead = self.arrow([row for row in self.rows if doomed(row)])
        for spec_id in {file.spec_id for file in live_data_files(self.table)}:
            writer = equality_delete_writer(
                target, output, key_ids, spec=target.spec_by_id(spec_id), whole_row=self.case.whole_row
            )
            for start in range(0, dead.num_rows, 100):
                writer.write(dead.slice(start, 100))
            files += writer.close()
        for file in write_files(self.table, self.arrow(and_write)).data_files:
            delta.add_rows(file)
        self._commit(delta, files)
        self.rows = [row for row in self.rows if not doomed(row)] + and_write

    def _commit(self, delta: RowDelta, files: Iterable[DataFile]) -> None:
        for file in files:
            delta.add_deletes(file)
        delta.commit()
        check_table(self.table, files_exist=True)

    def _numbers(self, file: DataFile) -> list[int]:
        schema = self.table.schema.select(["n"])
        batches = read_data_file(self.table.io, file.file_format, file.file_path, schema)
        return [n for batch in batches for n in batch.column(0).to_pylist()]


@cache
def _streamed(home: Path, case: Case, spark: SparkSession | None) -> Stream:
    """The table of `case`, in the state that all engines read."""
    location = home / f"deletes{CASES.index(case)}"
    schema = parse_ddl(DDL)
    table = create(
        str(location),
        schema,
        parse_partition_by(list(case.partition_by), schema),
        format_version=case.version,
        properties={
            "write.format.default": case.file_format,
            "write.delete.granularity": case.granularity,
            "write.target-file-size-bytes": "5000",
        },
    )
    stream = Stream(table, case)
    stream.append(_made(case, 0, 300))
    if case.evolved:
        assert spark is not None
        name = f"{ICE_CATALOG}.interop.{location.name}"
        spark.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD code_bucket WITH part")
        stream.table = table = open_table(str(location))
        assert len(table.specs) == 2
    stream.append(_made(case, 300, 200))
    if "positions" in case.deletes:
        stream.delete_positions(lambda n: n % 5 == 0 or n in range(40, 90))
        stream.delete_positions(lambda n: n % 7 == 1 or n in range(80, 120))
    if "keys" in case.deletes:
        names = KEYS[case.key]
        stream.delete_keys(lambda row: _chosen([row[name] for name in names]), _made(case, 500, 60))
        stream.append(_made(case, 560, 40))
        if "positions" in case.deletes:
            stream.delete_positions(lambda n: n % 6 == 2)
    return stream


def _chosen(key: list[Any]) -> bool:
    """About half of all keys, those with nulls, NaN, and zeros of either sign among them."""
    if None in key:
        return True
    if isinstance(key[0], float):
        return key[0] != key[0] or key[0] in (0, 1.5)
    return sum(map(ord, "".join(map(str, key)))) % 2 == 0


def _expected(stream: Stream, loose: frozenset[str] = frozenset()) -> list[Row]:
    return rows(stream.arrow(stream.rows), "n", loose)


@pytest.fixture
def spark_where_needed(request: pytest.FixtureRequest) -> Callable[[Case], Any]:
    """The Spark session for cases in which Java changes the table's spec, None for the others."""
    return lambda case: request.getfixturevalue("iceberg_spark") if case.evolved else None


@pytest.mark.parametrize(("case", "reader"), MATRIX, indirect=["reader"], ids=str)
def test_rows_are_equal(
    case: Case, reader: Reader, interop_home: Path, spark_where_needed: Callable[[Case], Any]
) -> None:
    stream = _streamed(interop_home, case, spark_where_needed(case))
    found = reader.read(Path(stream.table.location))
    assert rows(found, "n", reader.loose) == _expected(stream, reader.loose)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_our_own_reader(case: Case, interop_home: Path, spark_where_needed: Callable[[Case], Any]) -> None:
    stream = _streamed(interop_home, case, spark_where_needed(case))
    table = load_table(stream.table.location)
    assert rows(table.scan().to_arrow(), "n") == _expected(stream)
    assert table.scan().count() == len(stream.rows)
    files = [entry.data_file for entry in live_entries(stream.table) if not entry.data_file.is_data]
    assert len(stream.rows) < 400
    assert all(file.file_path.rpartition("-")[2] in _names(case) for file in files)
    if case.evolved:
        assert {file.spec_id for file in files} == {0, 1}


def _names(case: Case) -> set[str]:
    formats = {"puffin" if kind == "vectors" else case.file_format for kind in case.kinds}
    return {f"deletes.{each}" for each in formats}


@pytest.mark.parametrize(
    ("refusal", "reader"),
    [pytest.param(each, each.engine, id=str(each)) for each in DELETE_REFUSALS],
    indirect=["reader"],
)
def test_engine_refuses(
    refusal: DeleteRefusal,
    reader: Reader,
    interop_home: Path,
    spark_where_needed: Callable[[Case], Any],
) -> None:
    """Each hole of the matrix is the engine's own."""
    hit = [case for case in CASES if _refusal(refusal.engine, case) is refusal]
    assert hit
    for case in hit:
        stream = _streamed(interop_home, case, spark_where_needed(case))
        # The engines' own classes of errors: the message says which. One of them ends the connection.
        asked = DuckDbReader() if isinstance(reader, DuckDbReader) else reader
        if refusal.message:
            with pytest.raises(Exception, match=refusal.message):
                asked.read(Path(stream.table.location))
        else:
            found = asked.read(Path(stream.table.location))
            assert rows(found, "n", reader.loose) != _expected(stream, reader.loose)
