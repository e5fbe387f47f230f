"""What the other engines cannot read, as data: the interop matrix leaves out exactly this, and a test shows each to be so.

A refusal holds for tables that anybody writes: where Java can write such a table from SQL, the test uses Java's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FORMATS = ("parquet", "avro", "orc")


@dataclass(frozen=True)
class TableTypes:
    """A table as the refusals see it: per column the types of its leaves, and the columns it is partitioned by as they are."""

    columns: dict[str, frozenset[str]]
    file_format: str
    version: int
    identities: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """`engine` does not read columns of `types` (no types: any) in files of `formats` in tables of `versions`.

    With `whole_table` a table that has such a column cannot be read at all, else the other columns can. `message` is a
    part of what the engine raises; where it is empty, the engine raises nothing and reads nulls.
    """

    engine: str
    reason: str
    message: str
    types: tuple[str, ...] = ()
    formats: tuple[str, ...] = FORMATS
    versions: tuple[int, ...] = (2, 3)
    whole_table: bool = True
    identity_partition: bool = False
    """Only where a column of `types` is a partition field by its identity."""

    def __str__(self) -> str:
        return "-".join(
            [
                self.engine,
                *self.types,
                *(() if self.formats == FORMATS else self.formats),
                *(["partition"] if self.identity_partition else []),
            ]
        )

    def columns(self, table: TableTypes) -> list[str]:
        """Columns of the table for which the engine refuses it, or refuses these columns."""
        if table.file_format not in self.formats or table.version not in self.versions:
            return []
        names = table.identities if self.identity_partition else table.columns
        return [name for name in names if not self.types or table.columns[name] & set(self.types)]


_FIXED_PARTITION = "it reads Avro's fixed in partitions of manifests as bytes with a length before them"
REFUSALS = (
    *(
        Refusal(engine, _FIXED_PARTITION, "Failed to read|out of bounds", ("fixed",), identity_partition=True)
        for engine in ("java", "spark")
    ),
    Refusal("spark", "Spark's types have no time of day", "does not support time", ("time",)),
    Refusal(
        "spark",
        "Spark's timestamps are micros",
        "unsupported type to Spark",
        ("timestamp_ns", "timestamptz_ns"),
    ),
    Refusal("duckdb", "its iceberg extension reads Parquet only", "not supported", formats=("avro", "orc")),
    Refusal("duckdb", "it does not know the type", "Unrecognized primitive type", ("timestamptz_ns",)),
    Refusal(
        "chdb", "it takes a UUID of a partition for text", "can't decode", ("uuid",), identity_partition=True
    ),
    Refusal("pyiceberg", "it reads Parquet and ORC only", "Unsupported file format", formats=("avro",)),
    Refusal(
        "pyiceberg",
        "it takes every ORC timestamp of a v3 table for nanos, and narrows none",
        "Unsupported schema projection",
        ("timestamp", "timestamptz"),
        ("orc",),
        (3,),
        whole_table=False,
    ),
    Refusal(
        "pyiceberg",
        "it takes ORC's binary and long for what they are, not for what their attributes say",
        "Cannot promote",
        ("uuid", "fixed", "time"),
        ("orc",),
        whole_table=False,
    ),
    Refusal(
        "chdb", "its UUIDs in Avro are texts", "Cannot parse UUID", ("uuid",), ("avro",), whole_table=False
    ),
    Refusal("chdb", "its UUIDs in ORC are texts; it reads nulls", "", ("uuid",), ("orc",), whole_table=False),
)


def refused_columns(engine: str, table: TableTypes) -> frozenset[str]:
    """Of a table's columns those that `engine` cannot read."""
    refused: set[str] = set()
    for each in REFUSALS:
        if each.engine == engine and (hit := each.columns(table)):
            refused |= set(table.columns) if each.whole_table else set(hit)
    return frozenset(refused)


@dataclass(frozen=True)
class DeleteRefusal:
    """`engine` does not apply deletes of `kinds` (positions, vectors, keys) in tables with files of `formats`.

    With `null_partitions` only where partition values are null, with `evolved` only where the table's partition spec
    has changed. `message` is a part of what the engine raises; where it is empty, the engine deletes other rows.
    """

    engine: str
    reason: str
    message: str
    kinds: tuple[str, ...] = ("positions", "vectors", "keys")
    formats: tuple[str, ...] = FORMATS
    null_partitions: bool = False
    evolved: bool = False

    def __str__(self) -> str:
        words = [self.engine, *self.kinds, *(() if self.formats == FORMATS else self.formats)]
        words += ["null_partitions"] if self.null_partitions else []
        return "-".join([*words, *(["evolved"] if self.evolved else [])])

    def holds(
        self, engine: str, kinds: Iterable[str], file_format: str, *, null_partitions: bool, evolved: bool
    ) -> bool:
        """Whether the engine refuses a table with such deletes."""
        if (self.null_partitions and not null_partitions) or (self.evolved and not evolved):
            return False
        return engine == self.engine and file_format in self.formats and bool(set(kinds) & set(self.kinds))


DELETE_REFUSALS = (
    DeleteRefusal(
        "duckdb", "its iceberg extension reads Parquet only", "not supported", formats=("avro", "orc")
    ),
    DeleteRefusal(
        "duckdb",
        "it compares a partition's null with itself when it looks for equality deletes",
        "Comparison on NULL values",
        ("keys",),
        null_partitions=True,
    ),
    DeleteRefusal(
        "duckdb",
        "it gives a data file of an older partition spec the deletion vector of another file of that spec",
        "",
        ("vectors",),
        evolved=True,
    ),
    DeleteRefusal(
        "pyiceberg",
        "it reads position deletes in Parquet and ORC only",
        "not supported",
        ("positions",),
        ("avro",),
    ),
    DeleteRefusal(
        "pyiceberg", "it has no equality deletes yet", "not yet support equality deletes", ("keys",)
    ),
    DeleteRefusal(
        "chdb",
        "it applies position deletes to Parquet only",
        "only supported for data files of Parquet",
        ("positions",),
        ("avro", "orc"),
    ),
    DeleteRefusal(
        "chdb", "it has no deletion vectors yet", "supported only for parquet format", ("vectors",)
    ),
)
# A key column of such a type is a partition field by its identity.
DECIMAL_PARTITION = DeleteRefusal(
    "duckdb",
    "it takes a partition's value for text when it looks for equality deletes of a decimal, double, uuid or timestamp",
    "Expected unified vector format",
    ("keys",),
)
