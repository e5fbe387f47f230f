"""The diagnosis of one table: everything that `streamlake doctor` checks, in one go.

    metadata -> snapshots, manifests, deletes -> staged checkpoints -> key indexes -> storage
             -> checkpoint directory

It only reads. Invariant: what somebody else is just writing or removing is no finding. Where the table
changes during the diagnosis, the diagnosis is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.maintain.care import care_needed
from streamlake.maintain.reachable_files import Orphan, ReachableFiles
from streamlake.on_progress import OnProgress, unseen
from streamlake.operate.doctor.checkpoint_check import check_checkpoint
from streamlake.operate.doctor.finding import Finding, Findings, Severity
from streamlake.operate.doctor.index_health import check_indexes
from streamlake.operate.doctor.metadata_check import check_metadata
from streamlake.operate.doctor.staged_check import StagedCheckpoint, check_staged
from streamlake.operate.doctor.storage_check import StorageCheck, need_metadata
from streamlake.operate.doctor.table_check import TableCheck
from streamlake.table.table import Table
from streamlake.wording import counted

ORPHAN_AGE_MS = 24 * 3600 * 1000
"""A younger file that nothing refers to counts as work in progress."""
_LOOKS = 3


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and how much was checked.

    `files` and `bytes` are of the table's folders. `orphans` come oldest first, `staged` in the order in
    which they would be committed.
    """

    location: str
    snapshot_id: int | None = None
    snapshots: int = 0
    manifests: int = 0
    files: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    staged: tuple[StagedCheckpoint, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return not self.violations

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that are errors or warnings."""
        return tuple(finding for finding in self.findings if finding.is_violation)


def diagnose(
    location: str,
    catalog: CatalogOption = None,
    checkpoint: str | None = None,
    *,
    orphan_age_ms: int = ORPHAN_AGE_MS,
    deletes: bool = True,
    on_progress: OnProgress = unseen,
) -> Diagnosis:
    """Diagnose a table, and with `checkpoint` the checkpoint directory of a stream into it.

    `deletes` also reads every live delete file. Raises TableNotFoundError, InvalidOptionError, StorageError
    when there is nothing to diagnose; whatever else is wrong is a finding.
    """
    found = Diagnosis(location)
    for _ in range(_LOOKS):
        try:
            table = open_table(location, catalog)
            table.refresh()
        except (DataInvalidError, FeatureUnsupportedError) as error:
            fix = "restore the metadata file, or have the catalog point to an earlier version of it"
            finding = Finding(Severity.ERROR, "metadata-unreadable", location, str(error), fix)
            return Diagnosis(location, findings=(finding,))
        before = _metadata_path(table)
        found = _Look(table, catalog, before, orphan_age_ms, on_progress).diagnosis(
            checkpoint, deletes=deletes
        )
        table.refresh()
        if found.is_healthy or _metadata_path(table) == before:
            break
    return found


class _Look:
    """The diagnosis of one version of a table."""

    def __init__(
        self,
        table: Table,
        catalog: CatalogOption,
        metadata_path: str,
        orphan_age_ms: int,
        on_progress: OnProgress,
    ) -> None:
        self._table = table
        self._catalog = catalog
        self._metadata_path = metadata_path
        self._orphan_age_ms = orphan_age_ms
        self._on_progress = on_progress
        self._findings = Findings()
        self._reachable = ReachableFiles()

    def diagnosis(self, checkpoint: str | None, *, deletes: bool) -> Diagnosis:
        table, findings, reachable = self._table, self._findings, self._reachable
        check_metadata(table.metadata, self._metadata_path, findings)
        need_metadata(table, self._metadata_path, reachable)
        snapshots = TableCheck(table, findings, reachable, self._on_progress, deletes=deletes)
        snapshots.run()
        staged = check_staged(table, findings, reachable, self._counting("staged checkpoints"))
        self._on_progress("key index", 0, None)
        if reachable.is_complete:
            check_indexes(table, findings, reachable)
        storage = StorageCheck(
            table,
            self._metadata_path,
            reachable,
            findings,
            self._on_progress,
            min_age_ms=self._orphan_age_ms,
            judged_elsewhere=(table.locations.committables_directory,),
        )
        for care in care_needed(table) if reachable.is_complete else ():
            findings.note(care.kind, table.location, care.what, care.command)
        orphans = storage.run()
        _report_orphans(orphans, findings)
        if checkpoint is not None:
            self._on_progress("checkpoint directory", 0, None)
            check_checkpoint(table, self._catalog, checkpoint, findings, self._orphan_age_ms)
        return Diagnosis(
            table.location,
            table.metadata.current_snapshot_id,
            len(table.snapshots),
            snapshots.manifests,
            storage.files,
            storage.bytes,
            findings.all(),
            orphans,
            staged,
        )

    def _counting(self, what: str) -> Callable[[], None]:
        done = 0

        def step() -> None:
            nonlocal done
            self._on_progress(what, done, None)
            done += 1

        return step


def _report_orphans(orphans: tuple[Orphan, ...], findings: Findings) -> None:
    for kind in dict.fromkeys(orphan.kind for orphan in orphans):
        files = [orphan for orphan in orphans if orphan.kind == kind]
        size = sum(orphan.size for orphan in files)
        check = "temporary-files" if kind == "temporary" else f"orphan-{kind}-files"
        findings.warning(
            check,
            files[0].path if len(files) == 1 else f"{files[0].path} and {len(files) - 1:,} more",
            f"{counted(len(files), f'{kind} file')} of {counted(size, 'byte')} that nothing refers to",
            "they cost space and nothing else: delete those that `streamlake doctor --json` lists as orphans",
        )


def _metadata_path(table: Table) -> str:
    return str(getattr(table.operations, "metadata_path", table.location))
