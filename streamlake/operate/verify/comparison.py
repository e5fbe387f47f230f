"""Compares two sides of rows key by key in Spark: what is missing, extra, different, duplicated.

    source rows -+
                 +- one aggregation by key -> keys that disagree -> counts and examples, per task -> one value
    table rows  -+

Sides may be larger than memory: Spark sorts and spills, and only counts and a few examples reach the driver.
Invariant: equal keys and equal rows are equal bytes, so the comparison does not depend on how a type defines
equality.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from streamlake.formats.arrow.row_bytes import decode_row
from streamlake.operate.verify.compared_rows import UNREADABLE_KEY, RowForm
from streamlake.pipeline.spark.task_outcome import raised_on_executor
from streamlake.read.natural_values import natural_value
from streamlake.tasks.worker_paths import keep_archive_directories

MISSING, EXTRA, DIFFERENT, DUPLICATE = "missing", "extra", "different", "duplicate"
UNREADABLE = "unreadable"
PROBLEMS = (MISSING, EXTRA, DIFFERENT, DUPLICATE, UNREADABLE)
_HASH_BITS_LEFT_OUT = 20

Example = dict[str, Any]


@dataclass
class Disagreements:
    """Counts of rows by problem, counts of differing rows by column, and examples.

    `missing` are rows of the source that the table lacks, `extra` rows of the table that the source lacks,
    `different` keys whose rows differ, `duplicate` rows that the table has more often than the source,
    `unreadable` records of the source that cannot become rows.
    """

    rows: Counter[str] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    def merge(self, other: Disagreements, examples: int) -> None:
        """Add the counts of another one, and its examples up to `examples` of each problem."""
        self.rows.update(other.rows)
        self.columns.update(other.columns)
        for problem, found in other.examples.items():
            known = self.examples.setdefault(problem, [])
            known.extend(found[: examples - len(known)])


@dataclass(frozen=True)
class Compared:
    """The result of a comparison. `source_duplicates`: keys that the source itself has more than once."""

    source_rows: int
    table_rows: int
    keys: int
    source_duplicates: int
    found: Disagreements


def compare(source: DataFrame, table: DataFrame, form: RowForm, *, changes: bool, examples: int) -> Compared:
    """Compare two frames of SIDE_SCHEMA.

    With `changes` the source is a stream of changes; the last one of each key says what the table has to
    hold. Raises the streamlake error that made a task fail.
    """
    joined = source.withColumn("is_source", F.lit(True)).unionByName(
        table.withColumn("is_source", F.lit(False))
    )
    totals = Observation("streamlake-verify")
    by_key = _by_key(joined, changes=changes).observe(
        totals,
        F.sum("source_rows").alias("source_rows"),
        F.sum("table_rows").alias("table_rows"),
        F.count_if((F.col("source_rows") > 0) | (F.col("table_rows") > 0)).alias("keys"),
        F.count_if(F.col("source_rows") > 1).alias("source_duplicates"),
    )
    wrong = by_key.where((F.col("source_rows") != F.col("table_rows")) | ~F.col("is_equal"))
    columns = ["key", "source_row", "table_row", "source_rows", "table_rows"]
    task = _Examples(form, examples)
    found = Disagreements()
    try:
        for row in wrong.select(*columns).mapInArrow(task, "found binary").collect():
            found.merge(pickle.loads(bytes(row[0])), examples)
        counted = totals.get
    except Exception as error:
        ours = raised_on_executor(error)
        if ours is None:
            raise
        raise ours from error
    numbers = {name: int(counted.get(name) or 0) for name in ("source_rows", "table_rows", "keys")}
    for name in ("source_rows", "keys"):
        numbers[name] -= found.rows[UNREADABLE]
    return Compared(
        **numbers,
        source_duplicates=int(counted.get("source_duplicates") or 0) if form.key else 0,
        found=found,
    )


def _by_key(joined: DataFrame, *, changes: bool) -> DataFrame:
    """One row per key: how often each side has it, one of its rows, and whether the sides are equal."""
    is_source, is_table = F.col("is_source"), ~F.col("is_source")
    row = F.col("row")
    hashed = F.shiftright(F.xxhash64(row), _HASH_BITS_LEFT_OUT)

    def of(side: Column, value: Column) -> Column:
        return F.when(side, value)

    table = [
        F.count_if(is_table).alias("table_rows"),
        F.min(of(is_table, row)).alias("table_row"),
        F.max(of(is_table, row)).alias("table_max"),
        F.sum(of(is_table, hashed)).alias("table_hash"),
    ]
    if changes:
        order = F.struct("guard", "at", "partition")
        last = F.max_by(F.struct("removes", "row"), of(is_source, order))
        frame = joined.groupBy("key").agg(last.alias("last"), *table)
        is_there = F.col("last").isNotNull() & ~F.col("last.removes")
        return frame.select(
            "key",
            F.when(is_there, F.lit(1)).otherwise(F.lit(0)).cast("bigint").alias("source_rows"),
            "table_rows",
            F.when(is_there, F.col("last.row")).alias("source_row"),
            "table_row",
            F.coalesce(~is_there | (F.col("last.row").eqNullSafe(F.col("table_row"))), F.lit(True)).alias(
                "is_equal"
            ),
        )
    frame = joined.groupBy("key").agg(
        F.count_if(is_source).alias("source_rows"),
        F.min(of(is_source, row)).alias("source_row"),
        F.max(of(is_source, row)).alias("source_max"),
        F.sum(of(is_source, hashed)).alias("source_hash"),
        *table,
    )
    # The least and the greatest row distinguish up to two rows of a key; for more rows, the sum of their
    # hashes does.
    same = [F.col(f"source_{name}").eqNullSafe(F.col(f"table_{name}")) for name in ("row", "max", "hash")]
    return frame.select(
        "key",
        "source_rows",
        "table_rows",
        "source_row",
        "table_row",
        (same[0] & same[1] & same[2]).alias("is_equal"),
    )


@dataclass(frozen=True)
class _Examples:
    """Counts the keys that disagree and keeps some.

    It is a `mapInArrow` function that yields one pickled Disagreements.
    """

    form: RowForm
    kept: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archive_directories()
        found = Disagreements()
        for batch in batches:
            for row in batch.to_pylist():
                self._add(found, row)
        yield pa.record_batch([pa.array([pickle.dumps(found)], pa.binary())], names=["found"])

    def _add(self, found: Disagreements, row: dict[str, Any]) -> None:
        if row["key"][:1] == UNREADABLE_KEY:
            found.rows[UNREADABLE] += 1
            known = found.examples.setdefault(UNREADABLE, [])
            if len(known) < self.kept:
                place = row["key"][1:].decode()
                known.append({"record": place, "reason": row["source_row"].decode()})
            return
        source, table = row["source_rows"], row["table_rows"]
        if source > table:
            problem, count = MISSING, source - table
        elif table > source:
            problem, count = (DUPLICATE, table - source) if source else (EXTRA, table)
        else:
            problem, count = DIFFERENT, 1
        found.rows[problem] += count
        differing: dict[str, Any] = {}
        if problem == DIFFERENT:
            differing = self._differing(row["source_row"], row["table_row"])
            found.columns.update(differing.keys())
        known = found.examples.setdefault(problem, [])
        if len(known) < self.kept:
            known.append(self._example(row, differing))

    def _differing(self, source: bytes, table: bytes) -> dict[str, Any]:
        """Column -> the values of source and table, where they are not equal."""
        fields = self.form.value_fields
        types = [part.type for part in fields]
        pairs = zip(fields, decode_row(source, types), decode_row(table, types), strict=True)
        return {
            part.name: {"source": natural_value(part.type, one), "table": natural_value(part.type, other)}
            for part, (one, its), (other, others) in pairs
            if its != others
        }

    def _example(self, row: dict[str, Any], differing: dict[str, Any]) -> Example:
        fields = self.form.key_fields or self.form.fields
        values = decode_row(row["key"], [part.type for part in fields])
        named = {
            part.name: natural_value(part.type, value)
            for part, (value, _) in zip(fields, values, strict=True)
        }
        whole = row["source_row"] if row["source_row"] is not None else row["table_row"]
        example: Example = {
            "key" if self.form.key else "row": named,
            "source_rows": row["source_rows"],
            "table_rows": row["table_rows"],
        }
        if differing:
            return {**example, "columns": differing}
        if self.form.key and whole:
            others = self.form.value_fields
            decoded = decode_row(whole, [part.type for part in others])
            example["row"] = {
                part.name: natural_value(part.type, value)
                for part, (value, _) in zip(others, decoded, strict=True)
            }
        return example
