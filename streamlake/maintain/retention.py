"""Retention: which snapshots, branches and tags of a table expire, as Iceberg's RemoveSnapshots decides it.

A pure function of metadata and time, so that a plan and the commit agree. Rules (spec: Snapshot Retention
Policy): main and the head of every retained branch and tag stay; a branch keeps its newest ancestors up to a
number and an age, of its own or the table's; a snapshot of no branch stays until it is too old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import Property, bool_property, int_property
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.updates.metadata_changes import without_snapshots

MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"
GC_ENABLED = "gc.enabled"
PROPERTIES = (
    Property(
        MAX_SNAPSHOT_AGE, "432000000", "How old a snapshot of a branch becomes (5 days) before it may expire."
    ),
    Property(MIN_SNAPSHOTS, "1", "So many of the newest snapshots of every branch never expire."),
    Property(
        MAX_REF_AGE, "", "How old the snapshot of a branch or tag becomes before the branch or tag expires."
    ),
    Property(
        GC_ENABLED, "true", "With `false`, maintenance deletes no file: other tables may use the same ones."
    ),
)
_FIVE_DAYS_MS = 432_000_000


@dataclass(frozen=True)
class Retention:
    """What a table keeps at the time `now_ms`; all in epoch milliseconds, or milliseconds.

    `older_than_ms` and `min_snapshots` hold where a branch has none of its own; `max_ref_age_ms` None: for
    ever. `chosen` are snapshots that expire whatever their age.
    """

    now_ms: int
    older_than_ms: int
    min_snapshots: int
    max_ref_age_ms: int | None
    chosen: frozenset[int] = frozenset()

    @staticmethod
    def of(
        properties: Mapping[str, str],
        now_ms: int,
        *,
        older_than_ms: int | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] = (),
    ) -> Retention:
        """The retention of a table with these properties, where the arguments do not say otherwise.

        Raises InvalidOptionError.
        """
        if retain_last is not None and retain_last < 1:
            raise InvalidOptionError(f"retain_last={retain_last}: at least one snapshot of a branch is kept")
        age_ms = int_property(properties, MAX_SNAPSHOT_AGE, _FIVE_DAYS_MS)
        least = int_property(properties, MIN_SNAPSHOTS, 1, minimum=1)
        has_ref_age = MAX_REF_AGE in properties
        return Retention(
            now_ms,
            now_ms - age_ms if older_than_ms is None else older_than_ms,
            least if retain_last is None else retain_last,
            int_property(properties, MAX_REF_AGE, 0) if has_ref_age else None,
            frozenset(snapshot_ids),
        )


@dataclass(frozen=True)
class Expired:
    """What expires: ids of snapshots, and names of branches and tags."""

    snapshots: frozenset[int]
    refs: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)

    def removed_from(self, base: TableMetadata) -> TableMetadata:
        """The metadata without it; the same object where that has none of it."""
        return without_snapshots(base, self.snapshots, self.refs)


def agrees_to_expire(properties: Mapping[str, str]) -> bool:
    """Whether a table says itself that its snapshots expire."""
    return MAX_SNAPSHOT_AGE in properties or MIN_SNAPSHOTS in properties


def require_deletable(properties: Mapping[str, str], table: str) -> None:
    """Raise InvalidOptionError where the table forbids that its files are deleted."""
    if not bool_property(properties, GC_ENABLED, True):
        raise InvalidOptionError(
            f"{table}: its property {GC_ENABLED} is false, because other tables may use its files; nothing "
            "was deleted. Set it to true if they do not"
        )


def expired(base: TableMetadata, retention: Retention, held: Collection[int] = ()) -> Expired:
    """What expires of a table. `held` are snapshots that somebody works on: they stay.

    Raises InvalidOptionError for a chosen snapshot that a branch or tag needs.
    """
    refs = {name: ref for name, ref in base.refs.items() if _is_kept(base, name, ref, retention)}
    heads = {ref.snapshot_id: name for name, ref in refs.items()}
    for snapshot_id in sorted(retention.chosen & heads.keys()):
        name = heads[snapshot_id]
        raise InvalidOptionError(
            f"{base.location}: snapshot {snapshot_id} cannot expire, the {refs[name].type} '{name}' needs it"
        )
    kept = {*heads, *_of_branches(base, refs, retention), *_of_none(base, refs, retention)}
    kept = (kept - retention.chosen) | set(held)
    return Expired(frozenset(base.snapshots_by_id.keys() - kept), frozenset(base.refs.keys() - refs.keys()))


def _is_kept(base: TableMetadata, name: str, ref: SnapshotRef, retention: Retention) -> bool:
    if name == MAIN_BRANCH:
        return True
    snapshot = base.snapshot(ref.snapshot_id)
    age_ms = retention.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return snapshot is not None and (age_ms is None or retention.now_ms - snapshot.timestamp_ms <= age_ms)


def _of_branches(base: TableMetadata, refs: Mapping[str, SnapshotRef], retention: Retention) -> set[int]:
    kept: set[int] = set()
    for ref in refs.values():
        if ref.type != "branch":
            continue
        own_age_ms, own_least = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep
        since_ms = retention.older_than_ms if own_age_ms is None else retention.now_ms - own_age_ms
        least = retention.min_snapshots if own_least is None else own_least
        for number, snapshot in enumerate(base.ancestors(ref.snapshot_id)):
            if number >= least and snapshot.timestamp_ms < since_ms:
                break
            kept.add(snapshot.snapshot_id)
    return kept


def _of_none(base: TableMetadata, refs: Mapping[str, SnapshotRef], retention: Retention) -> set[int]:
    """The snapshots of no retained branch or tag that are too young to expire."""
    referred: set[int] = set()
    for ref in refs.values():
        if ref.type == "branch":
            referred.update(each.snapshot_id for each in base.ancestors(ref.snapshot_id))
        else:
            referred.add(ref.snapshot_id)
    return {
        each.snapshot_id
        for each in base.snapshots
        if each.snapshot_id not in referred and each.timestamp_ms >= retention.older_than_ms
    }
