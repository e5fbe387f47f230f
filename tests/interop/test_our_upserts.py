"""Tables that streams of changes have left are read row for row by the other engines.

PyIceberg reads them wherever old rows are found by the index: no equality delete is left there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.catalog.open import open_table
from streamlake.spec.metadata.data_file import FileContent
from tests.helpers.invariants import live_entries
from tests.helpers.oracle_plans import Checkpoint, Evolve, Foreign, Plan, Restart, Step, Upgrade
from tests.helpers.oracle_run import OracleRun
from tests.helpers.readers import DuckDbReader, Reader, rows
from tests.interop.refusals import DECIMAL_PARTITION, DELETE_REFUSALS

ENGINES = ("spark", "duckdb", "pyiceberg", "chdb")
COMPOSITE = ("string", "decimal(9, 2)")
EXTRAS = ("amount decimal(18,4)", "tags list<string>", "moment timestamptz")


@dataclass(frozen=True)
class Case:
    """A plan, and how the deletes in the table that it leaves are written."""

    plan: Plan
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        plan = self.plan
        words = [
            f"v{plan.format_version}",
            plan.delete_mode,
            plan.mode,
            "+".join(plan.key),
            *plan.partition_by,
        ]
        words += [plan.file_format] if plan.file_format != "parquet" else []
        words += ["upgraded"] if Upgrade() in plan.steps else []
        return "-".join(words).replace(" ", "")

    @property
    def has_decimal_partition(self) -> bool:
        """Whether there are equality deletes in partitions of a decimal key."""
        return "keys" in self.kinds and "k1" in self.plan.partition_by

    def is_read_by(self, engine: str) -> bool:
        plan = self.plan
        nulls = plan.delete_mode != "equality" and bool(plan.partition_by)
        if engine == DECIMAL_PARTITION.engine and self.has_decimal_partition:
            return False
        evolved = any(isinstance(step, Evolve) for step in plan.steps)
        return not any(
            each.holds(engine, self.kinds, plan.file_format, null_partitions=nulls, evolved=evolved)
            for each in DELETE_REFUSALS
        )


def _steps(*more: Step) -> tuple[Step, ...]:
    """Some checkpoints with whatever happens to a table, and deletes after the last compaction."""
    return (
        Foreign("append", 7),
        Checkpoint(bulk=11),
        Checkpoint(bulk=12, during=(Foreign("append", 3),)),
        Foreign("compact", 5),
        *more,
        Checkpoint(((1, 2, 0, 0), (2, 3, 0, 1), (3, 0, 0, 2), (3, 2, 0, 3)), bulk=13),
        Restart(3),
        Checkpoint(bulk=14, during=(Foreign("compact", 2),), crash=True),
        Checkpoint(tuple((key, 2 + key % 2, 0, key) for key in range(0, 40, 3)), bulk=15),
        Checkpoint(tuple((key, 2 + key % 2, 0, key) for key in range(0, 40, 4))),
    )


def _cases() -> list[Case]:
    found = []
    for version in (2, 3):
        deletes = "positions" if version == 2 else "vectors"
        spec = ("bucket(2, number)", "part")
        for key, partition_by in ((("long",), ()), (COMPOSITE, spec), (("double",), ("day(at)",))):
            plan = Plan(
                key=key,
                steps=_steps(),
                format_version=version,
                partition_by=partition_by,
                extras=EXTRAS,
                roll_bytes=20_000,
                chunk_rows=50,
            )
            found.append(Case(plan, (deletes,)))
        cow = Plan(
            COMPOSITE, _steps(), "upsert", "copy-on-write", (), version, partition_by=spec, extras=EXTRAS
        )
        found.append(Case(cow, ()))
        of_key = ("bucket(3, k1)", "truncate(2, k0)"), ("k0",), ("k1", "truncate(2, k0)")
        for partition_by in ((), *(of_key if version == 2 else of_key[:1])):
            plan = Plan(
                COMPOSITE,
                _steps(),
                delete_mode="equality",
                format_version=version,
                partition_by=partition_by,
                nullable_key=False,
                chunk_rows=50,
            )
            found.append(Case(plan, (deletes, "keys")))
        changes = Plan(
            ("date", "string"), _steps(), "changelog", format_version=version, sequence_values=("timestamp",)
        )
        found.append(Case(changes, (deletes,)))
    for file_format in ("avro", "orc"):
        plan = Plan(COMPOSITE, _steps(), format_version=2, file_format=file_format, partition_by=("part",))
        found.append(Case(plan, ("positions",)))
    upgraded = _steps(Evolve(("part",)), Checkpoint(bulk=21), Upgrade())
    plan = Plan(COMPOSITE, upgraded, format_version=2, partition_by=("bucket(2, number)",), roll_bytes=1)
    return [*found, Case(plan, ("vectors",))]


CASES = _cases()
MATRIX = [(case, engine) for case in CASES for engine in ENGINES if case.is_read_by(engine)]


@cache
def _streamed(home: Path, case: Case) -> OracleRun:
    run = OracleRun(case.plan, home / f"upserts{CASES.index(case)}")
    run.run()
    return run


def _expected(run: OracleRun) -> pa.Table:
    return run.rows.table(run.model.live())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_deletes_are_what_the_mode_says(case: Case, interop_home: Path) -> None:
    run = _streamed(interop_home, case)
    files = [entry.data_file for entry in live_entries(open_table(run.location))]
    kinds = {
        "keys" if file.content == FileContent.EQUALITY_DELETES else _positions(file.is_deletion_vector)
        for file in files
        if not file.is_data
    }
    assert kinds == set(case.kinds)
    assert len(run.model) > 5


def _positions(vector: bool) -> str:
    return "vectors" if vector else "positions"


@pytest.mark.parametrize(("case", "reader"), MATRIX, indirect=["reader"], ids=str)
def test_rows_are_equal(case: Case, reader: Reader, interop_home: Path) -> None:
    run = _streamed(interop_home, case)
    found = reader.read(Path(run.location))
    assert rows(found, "number", reader.loose) == rows(_expected(run), "number", reader.loose)


@pytest.mark.parametrize("case", [each for each in CASES if each.has_decimal_partition], ids=str)
def test_duckdb_refuses_partitions_of_decimals(case: Case, interop_home: Path) -> None:
    run = _streamed(interop_home, case)
    # The error ends the connection.
    with pytest.raises(Exception, match=DECIMAL_PARTITION.message):
        DuckDbReader().read(Path(run.location))


def test_pyiceberg_reads_all_but_equality() -> None:
    unread = {case.plan.delete_mode for case in CASES if not case.is_read_by("pyiceberg")}
    assert unread - {"equality"} == {"position"}, "only its Avro position deletes are missing"
    assert all(
        case.is_read_by("pyiceberg")
        for case in CASES
        if case.plan.delete_mode != "equality" and case.plan.file_format != "avro"
    )
