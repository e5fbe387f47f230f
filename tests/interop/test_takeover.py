"""Tables of Flink's Iceberg sink under our upserts, while Iceberg's own engine changes them too: it appends, compacts,
deletes, merges and rolls back, between our checkpoints and during them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import LineageError
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.spec.metadata.data_file import FileContent
from tests.helpers.change_stream import ChangeStream
from tests.helpers.flink_tables import (
    Event,
    FlinkTable,
    Model,
    Values,
    change_events,
    changes_table,
    values_table,
)
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.readers import DuckDbReader, SparkReader, rows
from tests.helpers.spark import ICE_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = Callable[["TakenOver"], None]

MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
_NUMBERS = itertools.count()


class TakenOver:
    """A table that Flink has filled and that two others now write: our stream, and Iceberg's engine in Spark."""

    def __init__(
        self,
        table: FlinkTable,
        spark: SparkSession,
        home: Path,
        delete_mode: str = "position",
        **options: Any,
    ) -> None:
        name = f"{table.case.name}_{next(_NUMBERS)}"
        self.spark = spark
        self.table = table.fork(home / ICE_CATALOG / "takeover" / name)
        self.name = f"{ICE_CATALOG}.takeover.{name}"
        self.random = random.Random(name)
        self.delete_mode = delete_mode
        self.options = options
        self.upserts = LocalUpserts(
            str(self.table.location), key=table.key, delete_mode=delete_mode, **options
        )

    def sql(self, statement: str) -> list[Any]:
        """Run SQL of Iceberg's engine in which `{t}` stands for the table."""
        return list(self.spark.sql(statement.replace("{t}", self.name)).collect())

    def call(self, procedure: str, arguments: str) -> Any:
        where = self.name.removeprefix(f"{ICE_CATALOG}.")
        (row,) = self.sql(f"CALL {ICE_CATALOG}.system.{procedure}(table => '{where}', {arguments})")
        return row

    def events(self, count: int = 120) -> list[Event]:
        """The next changes of the stream; the model is left as it is."""
        model = {key: dict(row) for key, row in self.table.model.items()}
        return list(change_events(self.table.case, model, self.random, count))

    def apply(self, events: Iterable[Event]) -> None:
        """What the changes make of the model: the last one of a key counts, whatever was there before."""
        for before, after in events:
            row = after or before
            assert row is not None
            if after is None:
                self.table.model.pop(self.key_of(row), None)
            else:
                self.table.model[self.key_of(row)] = after

    def restore(self, model: Model) -> None:
        """Take the model back to what it was."""
        self.table.model.clear()
        self.table.model.update(model)

    def key_of(self, row: Values) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.key)

    def checkpoint(self, during: Step | None = None, touching: Iterable[Values] = ()) -> CommitReceipt:
        """One checkpoint of ours, with updates of the rows `touching` too; `during` happens when it is staged."""
        events = self.events() + [(None, self.changed(row)) for row in touching]
        changes = changes_table(self.table.schema, events)
        between = None if during is None else lambda _: during(self)
        receipt = self.upserts.checkpoint(changes, between)
        assert receipt is not None
        self.apply(events)
        self.check()
        return receipt

    def new_rows(self, count: int = 20) -> list[Values]:
        """Rows with keys that neither the table nor the stream has had so far."""
        made: dict[tuple[Any, ...], Values] = {}
        while len(made) < count:
            for _, after in change_events(self.table.case, {}, self.random, 10):
                if after is not None:
                    row = after | {name: self.new_key(name, after[name]) for name in self.table.key}
                    made[self.key_of(row)] = row
        return list(made.values())[:count]

    def new_key(self, name: str, value: Any) -> Any:
        if value is None or name == "category":
            return value
        return (
            f"{value} {self.random.randrange(10**9)}"
            if isinstance(value, str)
            else value + self.random.randrange(1_000, 2**30)
        )

    def changed(self, row: Values) -> Values:
        (_, after), *_ = change_events(self.table.case, {}, self.random, 1)
        assert after is not None
        return after | {name: row[name] for name in self.table.key}

    def some(self, count: int = 15) -> list[Values]:
        """Rows that are in the table."""
        return self.random.sample(list(self.table.model.values()), count)

    def view(self, values: Iterable[Values]) -> str:
        """A view for SQL with these rows."""
        name = f"rows_{next(_NUMBERS)}"
        frame = self.spark.createDataFrame(values_table(self.table.schema, values))
        frame.coalesce(1).createOrReplaceTempView(name)
        return name

    @property
    def same_key(self) -> str:
        return " AND ".join(f"t.{name} <=> s.{name}" for name in self.table.key)

    @property
    def head(self) -> int:
        snapshot = open_table(str(self.table.location)).current_snapshot
        assert snapshot is not None
        return snapshot.snapshot_id

    def check(self) -> None:
        table = open_table(str(self.table.location))
        check_table(table)
        assert self.ours() == self.expected()

    def ours(self) -> list[Any]:
        return rows(load_table(str(self.table.location)).scan().to_arrow(), self.table.key)

    def expected(self) -> list[Any]:
        return rows(self.table.expected(), self.table.key)


def append(taken: TakenOver, values: list[Values] | None = None) -> None:
    """Iceberg's engine appends rows with keys of their own."""
    values = taken.new_rows() if values is None else values
    taken.sql(f"INSERT INTO {{t}} SELECT * FROM {taken.view(values)}")
    taken.apply((None, row) for row in values)


def compact(taken: TakenOver) -> None:
    files = taken.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert files["rewritten_data_files_count"]


def delete(taken: TakenOver) -> None:
    gone = taken.some()
    taken.sql(f"MERGE INTO {{t}} t USING {taken.view(gone)} s ON {taken.same_key} WHEN MATCHED THEN DELETE")
    taken.apply((row, None) for row in gone)


def delete_by_filter(taken: TakenOver) -> None:
    """As `DELETE FROM` does it: where nothing matches whole files, with deletes or with files that it writes again."""
    name = next(part.name for part in taken.table.schema.fields if part.name not in taken.table.key)
    value = next(row[name] for row in taken.some() if row[name] is not None)
    view = taken.view([row for row in taken.table.model.values() if row[name] == value])
    taken.sql(f"DELETE FROM {{t}} WHERE {name} IN (SELECT {name} FROM {view})")
    for key in [key for key, row in taken.table.model.items() if row[name] == value]:
        del taken.table.model[key]


def merge(taken: TakenOver) -> None:
    values = [*map(taken.changed, taken.some()), *taken.new_rows(5)]
    taken.sql(
        f"MERGE INTO {{t}} t USING {taken.view(values)} s ON {taken.same_key} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    taken.apply((None, row) for row in values)


def roll_back(taken: TakenOver) -> None:
    """Over the last snapshot, which is not ours."""
    table = open_table(str(taken.table.location))
    head = table.current_snapshot
    assert head is not None
    assert "streamlake.job-id" not in head.summary
    taken.call("rollback_to_snapshot", f"snapshot_id => {head.parent_snapshot_id}")


def several(taken: TakenOver) -> None:
    merge(taken)
    compact(taken)
    delete(taken)


STEPS = (append, compact, delete, delete_by_filter, merge)
NAMES = (
    *("plain_v2", "plain_v3", "composite_v3", "by_category_v2", "moving_v3", "null_keys_v2"),
    *("plain_v2/copy-on-write", "composite_v3/copy-on-write"),
)


def cases(*chosen: str) -> list[Any]:
    """All of NAMES; those not chosen run for long, and are no part of the suite."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.soak) for name in NAMES]


@pytest.fixture
def taken(
    request: pytest.FixtureRequest,
    flink_tables: dict[str, FlinkTable],
    iceberg_spark: SparkSession,
    spark_home: Path,
) -> TakenOver:
    name, *more = request.param.split("/")
    taken = TakenOver(flink_tables[name], iceberg_spark, spark_home, *more)
    if name.endswith("v3") or name.startswith("by_"):
        pairs = ", ".join(f"'{key}'='{value}'" for key, value in MERGE_ON_READ.items())
        taken.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})")
    return taken


@pytest.mark.parametrize(
    "taken", cases("plain_v2", "composite_v3", "moving_v3", "plain_v2/copy-on-write"), indirect=True
)
def test_other_writers_between_checkpoints(taken: TakenOver, spark_reader: SparkReader) -> None:
    live = len(taken.table.model)
    assert taken.checkpoint().counters["rows-indexed"] >= live
    for step in STEPS:
        step(taken)
        taken.check()
        taken.checkpoint(touching=taken.some())
        assert taken.checkpoint().counters["rows-indexed"] == 0
    # What is undone was in the index.
    before = taken.expected()
    model = {key: dict(row) for key, row in taken.table.model.items()}
    values = taken.new_rows()
    append(taken, values)
    roll_back(taken)
    taken.restore(model)
    assert taken.ours() == before
    taken.checkpoint(touching=values[:10])
    _finish(taken, spark_reader)


@pytest.mark.parametrize(
    "taken", cases("plain_v3", "by_category_v2", "null_keys_v2", "composite_v3/copy-on-write"), indirect=True
)
def test_other_writers_during_a_checkpoint(taken: TakenOver, spark_reader: SparkReader) -> None:
    taken.checkpoint(during=compact)
    for step in STEPS:
        receipt = taken.checkpoint(during=step, touching=taken.some())
        assert receipt.rows
    # Rows of the other writer and changes of ours have the same keys.
    values = taken.new_rows()
    taken.checkpoint(during=lambda each: append(each, values), touching=values[:10])
    taken.checkpoint(during=several, touching=taken.some())
    model = {key: dict(row) for key, row in taken.table.model.items()}
    values = taken.new_rows()
    append(taken, values)

    def undone(each: TakenOver) -> None:
        roll_back(each)
        each.restore(model)

    taken.checkpoint(during=undone, touching=values[:10])
    _finish(taken, spark_reader)


@pytest.mark.parametrize("taken", ["plain_v3", "composite_v2"], indirect=True)
def test_a_rollback_over_our_own_checkpoints(taken: TakenOver) -> None:
    """The stream stops, because the table no longer holds what it was told; another one goes on from where it is."""
    taken.checkpoint()
    back, model = taken.head, {key: dict(row) for key, row in taken.table.model.items()}
    for _ in range(3):
        taken.checkpoint()
    taken.call("rollback_to_snapshot", f"snapshot_id => {back}")
    with pytest.raises(LineageError, match="rolled back"):
        taken.checkpoint()
    taken.restore(model)
    taken.check()
    taken.upserts = LocalUpserts(
        str(taken.table.location), key=taken.table.key, job_id="another", pipeline="another"
    )
    # The index is that of the snapshot to which the table went back.
    assert taken.checkpoint().counters["rows-indexed"] == 0
    taken.checkpoint()


@pytest.mark.parametrize("taken", ["plain_v2", "by_category_v3"], indirect=True)
def test_a_staged_checkpoint_meets_a_compaction_after_a_restart(taken: TakenOver) -> None:
    taken.checkpoint()
    events = taken.events()
    assert taken.upserts.stage(changes_table(taken.table.schema, events)) is not None
    merge(taken)
    compact(taken)
    taken.upserts.restart()
    (receipt,) = taken.upserts.recover()
    assert receipt.rows
    taken.apply(events)
    taken.check()
    taken.checkpoint()


def test_only_what_others_wrote_is_read(
    flink_tables: dict[str, FlinkTable],
    iceberg_spark: SparkSession,
    spark_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = TakenOver(flink_tables["plain_v3"], iceberg_spark, spark_home)
    read: list[list[str]] = []
    index_part = IndexedRows.index_part

    def recorded(rows: IndexedRows, tasks: Any) -> Any:
        read.append([task.data_file.file_path for task in tasks])
        return index_part(rows, tasks)

    monkeypatch.setattr(IndexedRows, "index_part", recorded)
    flinks = {file.file_path for file in live_data_files(open_table(str(taken.table.location)))}
    taken.checkpoint()
    assert set(*read) == flinks
    before = {file.file_path for file in live_data_files(open_table(str(taken.table.location)))}
    append(taken)
    appended = {file.file_path for file in live_data_files(open_table(str(taken.table.location)))} - before
    read.clear()
    taken.checkpoint()
    assert [set(paths) for paths in read] == [appended]
    read.clear()
    taken.upserts.restart()
    taken.checkpoint()
    assert read == []


def _finish(taken: TakenOver, spark_reader: SparkReader) -> None:
    """The table as the other engines see it. None of us has written an equality delete."""
    taken.check()
    expected = taken.expected()
    assert rows(spark_reader.read(taken.table.location), taken.table.key) == expected
    # DuckDB cannot compare a null partition value.
    if taken.table.case.shape != "moving":
        duckdb = DuckDbReader()
        try:
            assert rows(duckdb.read(taken.table.location), taken.table.key) == expected
        finally:
            duckdb.connection.close()
    files = [entry.data_file for entry in live_entries(open_table(str(taken.table.location)))]
    ours = [file for file in files if file.file_path.startswith(f"file://{taken.table.location}/")]
    assert not [file for file in ours if file.content == FileContent.EQUALITY_DELETES]


def test_a_query_whose_checkpoints_others_interrupt(
    iceberg_spark: SparkSession, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same under Spark: between staging and commit, Iceberg's engine commits."""
    home = spark_home / ICE_CATALOG / "takeover" / "query"
    home.mkdir(parents=True)
    stream = ChangeStream(iceberg_spark, home)
    statements = [
        "CALL ice.system.rewrite_data_files(table => 'takeover.query.table', options => map('rewrite-all', 'true'))",
        "MERGE INTO ice.takeover.query.table t USING (SELECT id, 'p9' AS part, 'merged' AS v FROM range(0, 900, 4)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "INSERT INTO ice.takeover.query.table SELECT id, 'p1', 'inserted' FROM range(1100, 1300)",
        "DELETE FROM ice.takeover.query.table WHERE id % 10 = 3",
    ]
    theirs: list[list[Any]] = [
        [],
        [("+U", number, "p9", "merged") for number in range(0, 900, 4)],
        [("+U", number, "p1", "inserted") for number in range(1100, 1300)],
        [("-D", number, None, None) for number in range(3, 1300, 10)],
    ]
    stream.land(("+U", number, f"p{number % 2}", "first") for number in range(800))
    for turn, change in enumerate(theirs):
        stream.apply(change)
        puts = [("+U", n, f"p{n % 3}", f"turn {turn}") for n in range(turn, 1100, 5 + turn)]
        stream.land([*puts, *(("-D", n, None, None) for n in range(turn, 1100, 30))])
    commit = UpsertRun.commit
    interrupted: list[int] = []

    def interrupting(run: UpsertRun, committable: Committable, *more: Any, **options: Any) -> CommitReceipt:
        number = committable.identity.checkpoint_id
        if number:
            iceberg_spark.sql(statements[number - 1]).collect()
            interrupted.append(number)
        return commit(run, committable, *more, **options)

    monkeypatch.setattr(UpsertRun, "commit", interrupting)
    stream.run(stream.sink(partition_by=["part"], properties=MERGE_ON_READ))
    assert interrupted == [1, 2, 3, 4]
    stream.check()
