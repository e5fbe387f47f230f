"""The replay of rejected records: decodes them with the current settings, writes them once, and removes them.

    plan      what will be in the table and what fails again, kept beside the rejects table (`replay_plan`)
    stage     files in the table, under the replay's own job id
    commit    one snapshot of the table, with a marker: from here on these records are replayed
    settle    the records leave the rejects table, by a commit of its own (`rejects_settling`)

The next replay completes one that died: the table's marker shows whether the records of its plan are in the
table. Invariant: no record is removed from the rejects before the table has it, and none that the table has
is replayed again. It runs on the driver alone, without Spark.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake import clock
from streamlake.catalog.open import CatalogOption, open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.history import committed_snapshot
from streamlake.commit.marker import OFFSETS_DIGEST, REPLAY_JOB_PREFIX, Marker
from streamlake.commit.receipt import Outcome
from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.decode.rejected_records import RejectStamp, raw_records
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.envelope import Reject
from streamlake.errors import (
    CommitConflictError,
    FencedError,
    IndexDamagedError,
    InvalidOptionError,
    LineageError,
    NewSourceError,
    OutdatedValuesError,
    SchemaMismatchError,
    StagedUnfitError,
)
from streamlake.on_progress import OnProgress, unseen
from streamlake.operate.replay.chosen_rejects import of_one_topic, refused, whole
from streamlake.operate.replay.rejects_settling import settle
from streamlake.operate.replay.replay_plan import ReplayPlan, ReplayPlans, places
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects, rejects_name
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.pipeline.runs.stages import Written
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.sinks.arguments.default_sequence import sequence_columns
from streamlake.read.scan import TableScan
from streamlake.records import ROW_KIND, TRUNCATE_BELOW
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.tasks.direct_reader import asking_decoder
from streamlake.tasks.intake import KeyRoute
from streamlake.tasks.record_screen import RowScreen, reject_rules
from streamlake.tasks.row_names import RowRoute, left_nothing, of_table, route_columns
from streamlake.tasks.shuffle_blocks import unpacked
from streamlake.write.files.result import WriteResult
from streamlake.write.target.job_options import JobOptions
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows
from streamlake.write.upsert.upsert_target import CHANGELOG, POSITION, UPSERT, UpsertTarget
from streamlake.write.upsert.upsert_task import write_changes

Array = np.ndarray[Any, Any]

_MODES = ("append", UPSERT, CHANGELOG)
_BUCKETS = 2


@dataclass(frozen=True)
class ReplayedTable:
    """The table whose rejects are replayed, and its pipeline's current settings.

    `pipeline` None stands for one without a name; then the rejects of all pipelines are taken. With `routes`,
    only rows that name the table are its own, see `of_table`. `rejects_of` names the table whose rejects are
    replayed where it is another one, which stands for records without a table; rejects of other tables are
    then left alone. `has_default`: there is a table for rows that name none.
    """

    table: str
    source: KafkaSource
    pipeline: str | None = None
    catalog: CatalogOption = None
    mode: str = "append"
    key: Sequence[str] = ()
    sequence_by: Sequence[str] | None = None
    row_kind: str | None = None
    delete_mode: str = POSITION
    branch: str = MAIN_BRANCH
    write_options: Mapping[str, str] = field(default_factory=dict)
    routes: Sequence[RowRoute] = ()
    keeps_unrouted: bool = False
    has_default: bool = False
    rejects_of: str | None = None


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    `records` of the rejects became `rows` of the table in the snapshot `snapshot_id` (None: nothing was
    committed). `failed` ones stay, with their new errors. `recovered` ones were replayed by a replay that
    died, and were still among the rejects. `left` counts the rejects afterwards. `notes` are for the user.
    """

    table: str
    records: int = 0
    rows: int = 0
    failed: int = 0
    recovered: int = 0
    left: int = 0
    snapshot_id: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def replay(
    given: ReplayedTable,
    where: str | None = None,
    limit: int | None = None,
    on_progress: OnProgress = unseen,
) -> Replayed:
    """Replay the rejects of a table: those for which the filter `where` is true, the oldest `limit` of them.

    Raises TableNotFoundError, InvalidOptionError for a filter that does not parse or a mode without replays,
    and the errors of writing and committing. After these the rejects are as they were, or the next replay
    completes this one.
    """
    if given.mode not in _MODES:
        raise InvalidOptionError(
            f"{given.table}: a table in mode '{given.mode}' holds its last checkpoint only, so that nothing "
            "can be replayed into it"
        )
    table = open_table(given.table, given.catalog)
    rejected = given.rejects_of or given.table
    rejects = open_rejects(rejected, given.catalog)
    if rejects is None:
        return Replayed(
            given.table, notes=(f"there is no table {rejects_name(rejected)}: nothing was rejected",)
        )
    return _Replay(given, table, rejects, on_progress).carry_out(where, limit)


class _Replay:
    def __init__(self, given: ReplayedTable, table: Table, rejects: Table, on_progress: OnProgress) -> None:
        self._given = given
        self._on_progress = on_progress
        self._rejects = rejects
        self._name = f"{given.pipeline or given.table}.replay"
        if given.rejects_of is not None:
            self._name = f"{self._name}:{given.table}"
        self._others: set[str] = set()
        self._job_id = f"{REPLAY_JOB_PREFIX}{uuid.uuid5(uuid.UUID(rejects.uuid), self._name)}"
        self._sequence_by = sequence_columns(given.sequence_by, given.source, given.mode, given.delete_mode)
        self._row_kind = ROW_KIND if given.source.has_row_kinds else given.row_kind
        self._run = self._opened(table)
        self._plans = ReplayPlans(rejects, self._job_id)

    def carry_out(self, where: str | None, limit: int | None) -> Replayed:
        # The marker is read before the plans: a concurrent replay then either has its plan here, or has
        # settled it, or makes this one's commit fail, because both have the same number.
        marker = self._run.committer.marker(self._identity(NO_CHECKPOINT, ""))
        number = (NO_CHECKPOINT if marker is None else marker.checkpoint_id) + 1
        recovered = self._recovered(marker)
        if recovered and number <= max(plan.identity.checkpoint_id for plan in recovered):
            number = max(plan.identity.checkpoint_id for plan in recovered) + 1
        self._rejects.refresh()
        chosen = self._chosen(where, limit)
        found = Replayed(
            self._given.table,
            recovered=sum(len(plan.done) for plan in recovered),
            notes=self._notes(),
        )
        deadline = (
            clock.monotonic() + RetryOptions.for_commit(self._run.table.properties).total_timeout_ms / 1000
        )
        while chosen.num_rows:
            try:
                found = self._replayed(chosen, number, found)
                break
            except OutdatedValuesError:
                if clock.monotonic() > deadline:
                    raise
        self._rejects.refresh()
        return replace(found, left=TableScan(self._rejects).count())

    def _recovered(self, marker: Marker | None) -> list[ReplayPlan]:
        """Settle what earlier replays have brought into the table; remove their other plans.

        What they have staged is committed first.
        """
        staged = {each.identity.checkpoint_id: each for each in self._run.pending()}
        settled = []
        for plan in self._plans.pending():
            committable = staged.pop(plan.identity.checkpoint_id, None)
            if committable is not None and committable.identity != plan.identity:
                committable = None
            if marker is None or plan.identity.checkpoint_id > marker.checkpoint_id:
                is_held = committable is not None and self._recommitted(committable)
            else:
                is_held = self._is_held(plan, marker)
            if is_held:
                settle(self._rejects, plan, self._on_progress)
                settled.append(plan)
            self._plans.remove(plan)
            if committable is not None:
                self._run.store.remove(committable.identity)
        for committable in staged.values():
            self._run.store.remove(committable.identity)
        return settled

    def _is_held(self, plan: ReplayPlan, marker: Marker) -> bool:
        """Whether the table, at this marker or a later one of the job, has the records of a plan.

        Raises LineageError where that is no longer known.
        """
        number = plan.identity.checkpoint_id
        if number == marker.checkpoint_id:
            return marker.offsets_digest == plan.identity.offsets_digest
        table = self._run.table
        snapshot = committed_snapshot(table.metadata, self._given.branch, plan.identity)
        if snapshot is None:
            raise LineageError(
                f"{table.location}: the snapshot of replay {number} of {self._name} has expired, so nothing "
                f"shows whether the table has the {len(plan.done)} records of its plan, which is still "
                f"there. Compare them with the table, delete those from {self._rejects.name} that it has, "
                f"and then {self._plans.path(plan)}"
            )
        return snapshot.summary.get(OFFSETS_DIGEST) == plan.identity.offsets_digest

    def _recommitted(self, committable: Committable) -> bool:
        """Commit what was staged; False where that is no longer possible.

        Then its records are replayed like any others.
        """
        try:
            self._run.require_fit(committable)
            self._run.commit(committable, outcome=Outcome.RECOVERED)
        except (IndexDamagedError, OutdatedValuesError, StagedUnfitError):
            return False
        return True

    def _replayed(self, chosen: pa.Table, number: int, found: Replayed) -> Replayed:
        chosen, failed = whole(chosen)
        at = places(chosen).to_pylist()
        aim = self._run.aim(self._identity(number, ""))
        target = aim.target
        if isinstance(target, UpsertTarget):
            target = replace(target, yields=True)
        rows, undecoded = self._decoded(chosen, at, target)
        failed |= undecoded
        self._on_progress("writing", 0, None)
        results = self._written(target, rows)
        failed |= refused(chosen, at, results)
        done = tuple(place for place in at if place not in failed and place not in self._others)
        # The digest distinguishes replays of other records that have the same number.
        identity = self._identity(number, hashlib.sha256("\n".join(done).encode()).hexdigest()[:32])
        plan = ReplayPlan(identity, done, failed)
        if not done:
            self._run.discard(path for result in results for path in result.paths)
            settle(self._rejects, plan, self._on_progress)
            return _with_failed(found, failed)
        self._plans.write(plan)
        self._on_progress("committing", 0, None)
        committable = self._run.stage(identity, Written(tuple(results), aim.base))
        assert committable is not None, "every checkpoint of a replay is committed"
        try:
            receipt = self._run.commit(committable, results)
        except OutdatedValuesError:
            # Nothing of it is in the table; the same records are replayed against the table's current rows.
            self._run.store.remove(identity)
            self._plans.remove(plan)
            raise
        except (FencedError, LineageError) as error:
            raise CommitConflictError(
                f"another replay of {self._rejects.name} finished first: it has written its records into "
                f"{self._given.table}, and this one has written nothing; run it again for what is left"
            ) from error
        settle(self._rejects, plan, self._on_progress)
        self._run.store.remove(identity)
        self._plans.remove(plan)
        notes = (*found.notes, *_notes_of(receipt.counters.get("late", 0)))
        found = replace(
            found, records=len(done), rows=receipt.rows, snapshot_id=receipt.snapshot_id, notes=notes
        )
        return _with_failed(found, failed)

    def _chosen(self, where: str | None, limit: int | None) -> pa.Table:
        """The rejects to replay, in the order of rejection, and within a partition in that of the source."""
        self._on_progress("reading the rejects", 0, None)
        rows = TableScan(self._rejects, where).to_arrow()
        if self._given.pipeline is not None:
            rows = rows.filter(pc.equal(rows.column("pipeline"), self._given.pipeline))
        topics = [
            name for name in pc.unique(rows.column("topic")).to_pylist() if _is_read(self._given.source, name)
        ]
        rows = rows.filter(pc.is_in(rows.column("topic"), pa.array(topics, pa.string())))
        order = ("rejected_at", "topic", "partition", "offset")
        rows = rows.sort_by([(name, "ascending") for name in order])
        return rows if limit is None else rows.slice(0, limit)

    def _decoded(
        self, chosen: pa.Table, at: Sequence[str], target: WriteTarget | UpsertTarget
    ) -> tuple[list[tuple[int, pa.RecordBatch]], dict[str, tuple[str, str]]]:
        """The rows that can be decoded now, and why the other records cannot.

        The rows come as (place of the first one in the source, rows); the reasons as place -> (error class,
        message). The table records the source tables of topics, as it does where a stream brings their first
        rows.
        """
        while True:
            self._others.clear()
            try:
                return self._decoded_now(chosen, at, target)
            except NewSourceError as asked:
                self._run.keep_sources({asked.topic: asked.table})

    def _decoded_now(
        self, chosen: pa.Table, at: Sequence[str], target: WriteTarget | UpsertTarget
    ) -> tuple[list[tuple[int, pa.RecordBatch]], dict[str, tuple[str, str]]]:
        source = self._given.source
        if source.schema is None:
            source = source.with_schema(with_row_kind(self._run.table.schema, self._row_kind))
        rules = reject_rules(target, self._row_kind, RejectStamp(self._name, NO_CHECKPOINT, 0))
        # As in the stream: a row that moved to another table is also removed from its old one.
        routes = route_columns(self._given.routes, source.schema or self._run.table.schema)
        sources = sources_of(self._run.table)
        screen = RowScreen(rules)

        def written(decoded: Decoded) -> Array:
            found: Array = np.isin(decoded.records, screen.fitting(self._own(decoded)[0]).records)
            return found

        def decoder(topic: str) -> Decoder:
            return asking_decoder(
                source, rules.key, None, routes if rules.key else (), topic, sources, written
            )

        found: list[tuple[int, pa.RecordBatch]] = []
        failed: dict[str, tuple[str, str]] = {}
        order = 0
        for low, count in of_one_topic(chosen):
            self._on_progress("decoding records", low, chosen.num_rows)
            raw = raw_records(chosen.slice(low, count))
            found_here = decoder(raw.column("topic")[0].as_py()).decode(raw, keep_rejects=True)
            own, others = self._own(found_here)
            self._others.update(at[low + record] for record in others)
            decoded = screen.screened(own)
            for reject in decoded.rejects:
                failed[at[low + reject.record]] = (reject.error, reject.reason)
            truncated = decoded.truncated()
            if truncated is not None:
                found.append((order, truncated))
            if decoded.rows.num_rows:
                found.append((order, decoded.rows))
                order += decoded.rows.num_rows
        return sorted(found, key=lambda part: TRUNCATE_BELOW not in part[1].schema.names), failed

    def _own(self, decoded: Decoded) -> tuple[Decoded, set[int]]:
        """The rows for this table, and the records that are left to another one.

        A record whose rows name other tables stays a reject, as the rejects of those do not have it. A record
        from the rejects without a table that names another table is left to that table.
        """
        routes = self._given.routes
        if not routes or not decoded.rows.num_rows:
            return decoded, set()
        mine = of_table(routes, decoded.rows, self._given.table, keeps_unrouted=self._given.keeps_unrouted)
        others = ~mine
        if not self._given.has_default:
            lost = of_table(routes, decoded.rows, "", keeps_unrouted=True)
            others &= ~(lost & left_nothing(decoded.rows, decoded.records))
        own, other = set(decoded.records[mine].tolist()), set(decoded.records[others].tolist())
        left: set[int] = set()
        if self._given.rejects_of is None:
            strange = sorted(other - own)
            reason = f"its rows name another table than {self._given.table}; send it to the topic again"
        else:
            strange = sorted(other & own)
            reason = "its rows name several tables; send it to the topic again"
            left = other - own
            mine &= ~np.isin(decoded.records, strange)
        rejects = [
            *decoded.rejects,
            *(Reject(record, reason, SchemaMismatchError.__name__) for record in strange),
        ]
        kept = replace(
            decoded,
            rows=decoded.rows.filter(pa.array(mine)),
            records=decoded.records[mine],
            moves=(),
            rejects=tuple(sorted(rejects, key=lambda reject: reject.record)),
        )
        return kept, left

    def _written(
        self, target: WriteTarget | UpsertTarget, rows: Iterable[tuple[int, pa.RecordBatch]]
    ) -> list[WriteResult]:
        if not isinstance(target, UpsertTarget):
            return [write_rows(target, (batch for _, batch in rows), 0, 0, 0)]
        kind = self._row_kind
        route = KeyRoute(
            0,
            target.buckets,
            target.key.columns,
            target.key.codec,
            kind,
            kind is not None and kind in target.table.schema.column_names,
            f"{target.table.location}: column '{kind}'",
            target.message_key,
        )
        by_bucket: dict[int, list[pa.RecordBatch]] = {}
        for order, batch in rows:
            for shuffle_block in unpacked(route.shuffle_blocks(batch, order)):
                by_bucket.setdefault(shuffle_block.slot, []).extend(shuffle_block.batches())
        return [
            write_changes(target, batches, bucket, bucket, 0) for bucket, batches in sorted(by_bucket.items())
        ]

    def _notes(self) -> tuple[str, ...]:
        given = self._given
        if given.mode != UPSERT or self._sequence_by:
            return ()
        return (
            "without sequence_by a replayed change may be older than the table's row of its key: it "
            "replaces the row all the same",
        )

    def _identity(self, number: int, digest: str) -> CheckpointIdentity:
        return CheckpointIdentity(self._name, self._job_id, number, end_offsets=(f"replay {digest}",))

    def _opened(self, table: Table) -> SinkRun:
        given = self._given
        settings = RunSettings(
            job_id=self._job_id,
            run_id=self._job_id,
            branch=given.branch,
            mode=given.mode,
            max_continuous_empty_commits=1,
            job=JobOptions.of(given.write_options, None),
        )
        no_note = cast(CheckpointTable, None)  # there is no checkpoint directory
        if given.mode == "append":
            return SinkRun(table, no_note, settings)
        options = UpsertOptions.of(
            table,
            key=tuple(given.key),
            sequence_by=self._sequence_by,
            row_kind=self._row_kind,
            delete_mode=given.delete_mode,
            parallelism=_BUCKETS,
        )
        return UpsertRun(table, no_note, None, options, settings)


def _notes_of(late: int) -> tuple[str, ...]:
    if not late:
        return ()
    return (
        f"{late} replayed changes are older than what the table has for their key, and changed nothing. "
        "Where a later change left a value out (TOASTed, or a missing field), the table still has the value "
        "from before the rejected change: compare with `streamlake verify`, or have the database send these "
        "rows again",
    )


def _with_failed(found: Replayed, failed: Mapping[str, tuple[str, str]]) -> Replayed:
    return replace(found, failed=len(failed), errors=_counted(failed))


def _is_read(source: KafkaSource, topic: str) -> bool:
    if source.topic_pattern is not None:
        return re.fullmatch(source.topic_pattern, topic) is not None
    return topic in (source.topics or ())


def _counted(failed: Mapping[str, tuple[str, str]]) -> dict[str, int]:
    """Error message -> how many records have it, the most frequent first."""
    texts, counts = np.unique([text for _, text in failed.values()], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(texts[at]): int(counts[at]) for at in order}
