"""The Spark jobs of a micro-batch on the direct path, for any number of tables: ranges in, results out.

    ranges -> [fetch, decode] -> shuffle blocks -> by slot -> [look up, write] -> outcomes      (upserts)
    ranges -> [fetch, decode, write] -> outcomes                                         (appends)

Place in the flow: between the micro-batch and its tables' runs, on the driver. Invariant: files of a table
that did not succeed as a whole are removed, and an error of one table does not change the results of the
others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import IndexDamagedError, StreamlakeError
from streamlake.pipeline.kafka.owned_ranges import intended, ranges_by_bucket
from streamlake.pipeline.kafka.range_frame import RangeFrame
from streamlake.pipeline.runs.column_check import check_columns
from streamlake.pipeline.runs.parallel import in_parallel
from streamlake.pipeline.runs.rejected.refused_changes import not_kept, refused_changes, write_refused
from streamlake.pipeline.runs.rejects import Rejects
from streamlake.pipeline.runs.requests import TABLE_HANDLERS, AskedTable, Requests
from streamlake.pipeline.runs.routed.routed_job import Outcomes, RoutedJob
from streamlake.pipeline.runs.routed.row_families import FamilyWrite, RowPart
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.pipeline.runs.stages import Aim, WriteEnding, Written
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.spark.arrow_batches import bound_by_shuffle_blocks
from streamlake.pipeline.spark.key_routing import repartition_by_bucket
from streamlake.pipeline.spark.task_outcome import collected, task_ids
from streamlake.tasks.direct_reader import RangeReader
from streamlake.tasks.intake import ANY_TOPIC, Intake, KeyRoute, intake_of
from streamlake.tasks.record_screen import RejectRules, reject_rules
from streamlake.tasks.routed_intake import RoutedIntake
from streamlake.tasks.shuffle_block_task import ShuffleBlockTask
from streamlake.tasks.shuffle_blocks import SHUFFLE_BLOCKS_DDL
from streamlake.tasks.table_tasks import AppendTask, ChangeTask, OwnedTask, rejects_of
from streamlake.tasks.watermarks import Findings, merged
from streamlake.write.files.outcomes import OUTCOMES_DDL, TaskOutcome, results_of
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_target import UpsertTarget

_TASKS_PER_CORE = 4


@dataclass(frozen=True)
class TableWrite:
    """One table's part in a micro-batch: its run, the checkpoint's identity there, its records' reader.

    `topics` None: every topic that no other table reads. With a `part` it shares its routed topics with other
    tables.
    """

    run: SinkRun
    identity: CheckpointIdentity
    reader: RangeReader
    topics: tuple[str, ...] | None = None
    part: RowPart | None = None

    @property
    def may_idle(self) -> bool:
        """Whether a table without any results had no records; see TablePart."""
        return self.part is not None


def write_tables(
    frame: RangeFrame, writes: Sequence[TableWrite], families: Sequence[FamilyWrite] = ()
) -> list[WriteEnding]:
    """Write the records of `frame` to the tables; one entry for each of `writes`. `families` are the routed
    topics of the tables with a `part`, and those whose tables are not discovered yet; what is found out about
    them is filled in there.

    A table is written again whenever a request of its tasks was answered, see `requests`. Raises what ends
    Spark's job.
    """
    found: dict[int, WriteEnding] = {}
    requests = [Requests(TABLE_HANDLERS) for _ in writes]
    due = dict.fromkeys(range(len(writes)), False)
    routed = RoutedJob(writes, families)
    while due or routed.is_due:
        job = _Job(frame, routed)
        refused = job.add_all({number: writes[number] for number in due}, rebuilds=due)
        outcomes = job.run()
        left_out = routed.settled(outcomes, due)
        found.update(refused)
        found.update({number: error for number, error in left_out.items() if error is not None})
        again = {number: False for number, error in left_out.items() if error is None}
        for number in [each for each in due if each not in left_out and each not in refused]:
            ending = _ended(number, writes[number], job, outcomes)
            if isinstance(ending, Written):
                found[number] = ending
                continue
            asked = AskedTable(writes[number].run, job.aims[number])
            answer = requests[number].answer(asked, ending)
            if isinstance(answer, StreamlakeError):
                found[number] = answer
            else:
                again[number] = answer is IndexDamagedError
        due = again
    return [found[number] for number in range(len(writes))]


def _ended(number: int, write: TableWrite, job: _Job, outcomes: Outcomes) -> Written | list[StreamlakeError]:
    """What was written of a table as a whole; else the errors of its tasks, whose files are removed."""
    results, errors = outcomes[number]
    rejected, beside = outcomes.get(rejects_of(number), ([], []))
    errors = [*errors, *beside]
    run, rejects = write.run, write.run.rejects
    if not errors:
        try:
            rejected = [*rejected, *_refused(write, results)]
            if rejects is not None:
                rejects.take(write.identity, rejected)
        except StreamlakeError as error:
            errors = [error]
    if errors:
        run.discard(path for result in results for path in result.paths)
        if rejects is not None:
            rejects.discard(rejected)
        return errors
    findings = merged(job.newest.get(job.routed.reported_by(number), ()))
    passed_over = _passed_over(write, findings)
    return Written(tuple(results), job.aims[number].base, findings.newest, passed_over, findings.nulls)


def _intended(write: TableWrite, frame: RangeFrame) -> TableWrite:
    """The write, after its run was given what the micro-batch brings to it."""
    if isinstance(write.run, UpsertRun) and write.part is None:
        write.run.owner.intended = intended(frame, write.identity, write.reader.source, write.topics)
    return write


def _passed_over(write: TableWrite, findings: Findings) -> int:
    """The number of skipped records; those of routed topics count for none of their tables."""
    if write.part is not None:
        return 0
    table, wanted = write.run.table, write.reader.source.settings.source_tables
    known = sources_of(table).values() if wanted else ()
    return write.run.filtered.see(wanted, findings.named, known, table.location)


def _refused(write: TableWrite, results: Sequence[WriteResult]) -> list[WriteResult]:
    """The rejects among changes that could not be applied. Raises DecodeError where none are kept."""
    refused = refused_changes(results)
    if not refused:
        return []
    rejects = write.run.rejects
    if rejects is None:
        raise not_kept(refused)
    if rejects.target(write.identity) is None:
        rejects.create()
    target = rejects.target(write.identity)
    assert target is not None
    end = source_offsets(write.identity.end_offsets)
    topic_ids = {} if end is None else end.topic_ids
    return [write_refused(write.reader.source, refused, target, rejects.stamp(write.identity), topic_ids)]


def _ready(write: TableWrite, *, rebuild: bool) -> tuple[TableWrite, Aim]:
    """The write with a reader for the columns that the table has by now, and what its tasks get."""
    run = write.run
    follower = run.follower
    if write.reader.source.is_envelope:
        write = replace(write, reader=replace(write.reader, sources=sources_of(run.table)))
    if write.part is not None:
        family = write.part.family
        if follower.is_on and family.is_given:
            follower.follow_declared(lambda: run.columns_for_table(family.source.table_schema))
        return write, run.aim(write.identity, rebuild=rebuild)
    if follower.is_on:
        follower.follow_declared(lambda: run.columns_for_table(write.reader.source.table_schema))
        aim = run.aim(write.identity, rebuild=rebuild)
        columns = follower.lenient(run.table.schema)
        return replace(write, reader=write.reader.following(columns, run.row_kind, follower.watch)), aim
    return write, run.aim(write.identity, rebuild=rebuild)


@dataclass
class _Job:
    """The tables that are written by one round of Spark jobs."""

    frame: RangeFrame
    routed: RoutedJob
    intakes: dict[str, Intake] = field(default_factory=dict)
    appends: dict[int, WriteTarget] = field(default_factory=dict)
    upserts: dict[int, UpsertTarget] = field(default_factory=dict)
    rejects: dict[int, WriteTarget] = field(default_factory=dict)
    slots: list[tuple[int, int]] = field(default_factory=list)
    owned: dict[int, UpsertTarget] = field(default_factory=dict)
    newest: dict[int, list[bytes | None]] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    """How many tasks may append, by the numbers of tables and of routed topics (the largest limit of their
    tables)."""

    aims: dict[int, Aim] = field(default_factory=dict)

    def add_all(
        self, writes: Mapping[int, TableWrite], rebuilds: Mapping[int, bool]
    ) -> dict[int, StreamlakeError]:
        """Add these tables, by number; the error of each that cannot be written. `rebuilds`: those that get a
        new index.
        """
        refused: dict[int, StreamlakeError] = {}

        def ready(number: int) -> tuple[TableWrite, Aim]:
            return _ready(_intended(writes[number], self.frame), rebuild=rebuilds[number])

        for number, each in zip(writes, in_parallel(list(writes), ready), strict=True):
            try:
                if isinstance(each, StreamlakeError):
                    raise each
                self.add(number, *each)
            except StreamlakeError as error:
                refused[number] = error
        return refused

    def add(self, number: int, write: TableWrite, aim: Aim) -> None:
        target = aim.target
        self.aims[number] = aim
        route = self._route(number, aim, write)
        beside = () if route is None else needed_columns(route, target)
        if write.part is None:
            check_columns(write.reader.schema.names, write.run.table, beside=beside)
        if number in self.owned:
            pass
        elif isinstance(target, UpsertTarget):
            self.upserts[number] = target
        else:
            self.appends[number] = target
            if (most := write.run.job.parallelism) is not None:
                reported_by = self.routed.reported_by(number)
                self.limits[reported_by] = max(most, self.limits.get(reported_by, 0))
        rules = slot = None
        if write.run.rejects is not None:
            rules, slot = self._rejecting(number, write, write.run.rejects, target)
        if write.part is not None:
            self.routed.add(number, target, route, rules, slot, beside)
            return
        for topic in (ANY_TOPIC,) if write.topics is None else write.topics:
            self.intakes[topic] = Intake(number, write.reader, route, rules, slot)

    def _rejecting(
        self, number: int, write: TableWrite, rejects: Rejects, target: WriteTarget | UpsertTarget
    ) -> tuple[RejectRules, int | None]:
        """How a table's rejects are reported, and the slot for them where rows have slots."""
        rules = reject_rules(target, write.run.row_kind, rejects.stamp(write.identity), rejects.most)
        rules = replace(rules, schema=write.run.follower.lenient(rules.schema))
        beside = rejects.target(write.identity)
        if beside is None:
            return rules, None
        self.rejects[rejects_of(number)] = beside
        if not isinstance(target, UpsertTarget) or number in self.owned:
            return rules, None
        self.slots.append((rejects_of(number), 0))
        return rules, len(self.slots) - 1

    def _route(self, number: int, aim: Aim, write: TableWrite) -> KeyRoute | None:
        target = aim.target
        if not isinstance(target, UpsertTarget):
            return None
        kind = write.run.row_kind
        first = len(self.slots)
        if write.part is None and isinstance(write.run, UpsertRun) and write.run.owns(aim):
            self.owned[number] = target
        else:
            self.slots += [(number, bucket) for bucket in range(target.buckets)]
        return key_route(target, kind, first)

    def run(self) -> Outcomes:
        found: dict[int, tuple[list[WriteResult], list[StreamlakeError]]] = {
            number: ([], [])
            for number in (*self.appends, *self.upserts, *self.owned, *self.rejects, *self.routed.numbers)
        }
        for outcome in (*self._appended(), *self._owned(), *self._upserted()):
            results, errors = found[outcome.table]
            self.newest.setdefault(outcome.table, []).append(outcome.newest)
            if outcome.error is not None:
                errors.append(outcome.error)
            else:
                results += results_of([outcome])
        self.routed.pass_over({number: merged(parts).named for number, parts in self.newest.items()})
        return found

    def _appended(self) -> Sequence[TaskOutcome]:
        intakes: dict[str, Intake | RoutedIntake] = {
            topic: each for topic, each in self.intakes.items() if each.route is None
        }
        intakes.update(self.routed.appending())
        if not intakes:
            return ()

        def of(topic: str) -> int | None:
            intake = intake_of(intakes, topic)
            if isinstance(intake, RoutedIntake):
                return intake.family
            return None if intake is None else intake.table

        task = AppendTask(intakes, {**self.appends, **self.rejects}, task_ids)
        groups = self.frame.groups(of, self.limits)
        return collected(self.frame.together(groups, len(groups), task, OUTCOMES_DDL))

    def _owned(self) -> Sequence[TaskOutcome]:
        intakes = {topic: each for topic, each in self.intakes.items() if each.table in self.owned}
        groups = ranges_by_bucket(self.frame.ranges, intakes, self.owned)
        if not groups:
            return ()
        task = OwnedTask(intakes, {**self.owned, **self.rejects}, task_ids)
        return collected(self.frame.together(groups, _most_tasks(self.frame.session), task, OUTCOMES_DDL))

    def _upserted(self) -> Sequence[TaskOutcome]:
        parted = self.routed.upserting(self.slots)
        if not self.upserts:
            return ()
        bound_by_shuffle_blocks(self.frame.session)
        intakes: dict[str, Intake | RoutedIntake] = {
            topic: each for topic, each in self.intakes.items() if each.table in self.upserts
        }
        intakes.update(parted)
        shuffle_blocks = self.frame.tasks(ShuffleBlockTask(intakes, task_ids), SHUFFLE_BLOCKS_DDL)
        routed = by_slot(shuffle_blocks, len(self.slots))
        task = ChangeTask(tuple(self.slots), {**self.upserts, **self.rejects}, task_ids)
        return collected(routed.mapInArrow(task.__call__, OUTCOMES_DDL))


def by_slot(shuffle_blocks: DataFrame, slots: int) -> DataFrame:
    """The shuffle blocks, each slot in one partition, slot after slot, each in the order of the source."""
    most = _most_tasks(shuffle_blocks.sparkSession)
    if slots <= most:
        routed = repartition_by_bucket(shuffle_blocks, F.col("slot"), slots)
    else:
        routed = repartition_by_bucket(shuffle_blocks, F.col("slot") % most, most)
    return routed.sortWithinPartitions("slot", "place")


def _most_tasks(session: SparkSession) -> int:
    cores: int = session.sparkContext.defaultParallelism
    return max(cores, 1) * _TASKS_PER_CORE


def key_route(target: UpsertTarget, kind: str | None, first_slot: int = 0) -> KeyRoute:
    """Where the changes of a table go; `kind` is the stream's column with row kinds."""
    return KeyRoute(
        first_slot,
        target.buckets,
        target.key.columns,
        target.key.codec,
        kind,
        kind is not None and kind in target.table.schema.column_names,
        f"{target.table.location}: column '{kind}'",
        target.message_key,
    )


def needed_columns(route: KeyRoute, target: WriteTarget | UpsertTarget) -> tuple[str, ...]:
    """The columns that changes need beside those of the table."""
    keys = target.key.stored_columns if isinstance(target, UpsertTarget) else ()
    return tuple(dict.fromkeys((*keys, *([] if route.row_kind is None else [route.row_kind]))))
