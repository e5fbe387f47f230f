"""Checks every snapshot of a table, from its manifest list down to the files: readable, counted, complete.

Each manifest is read once, however many snapshots share it. The counters of all snapshots are recounted from
that, and the heads of branches and tags are checked file by file. The files are collected for the check of
the storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, MissingFileError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.maintain.reachable_files import ReachableFiles
from streamlake.on_progress import OnProgress
from streamlake.operate.doctor.delete_check import DeleteCheck
from streamlake.operate.doctor.finding import Finding, Findings, Severity
from streamlake.operate.doctor.head_check import HeadCheck
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.producers.summary import Counters, counter_names
from streamlake.table.table import Table

_STATUS_NAMES = (
    (EntryStatus.ADDED, "added"),
    (EntryStatus.EXISTING, "existing"),
    (EntryStatus.DELETED, "deleted"),
)


@dataclass
class _Recount:
    """The counts of one manifest. `added` and `removed` are by the snapshot that did it."""

    live: Counters = field(default_factory=Counters)
    added: dict[int, Counters] = field(default_factory=dict)
    removed: dict[int, Counters] = field(default_factory=dict)


@dataclass(eq=False)
class _Manifest:
    """One manifest and the snapshots that list it."""

    file: ManifestFile
    snapshots: int = 0
    heads: list[HeadCheck] = field(default_factory=list)
    recount: _Recount | None = None


class TableCheck:
    """Checks the snapshots of one version of a table.

    With `deletes` the delete files of heads are read as well.
    """

    def __init__(
        self,
        table: Table,
        findings: Findings,
        reachable: ReachableFiles,
        on_progress: OnProgress,
        *,
        deletes: bool = True,
    ) -> None:
        self._table = table
        self._metadata = table.metadata
        self._findings = findings
        self._reachable = reachable
        self._on_progress = on_progress
        self._deletes = deletes
        self._manifests: dict[tuple[str, int | None], _Manifest] = {}
        self._lists: dict[int, list[_Manifest] | None] = {}
        self._off: dict[int, dict[str, int]] = {}

    @property
    def manifests(self) -> int:
        """How many manifests were checked."""
        return len(self._manifests)

    def run(self) -> None:
        """Add everything that is wrong to the findings, and every file to the reachable ones."""
        heads = self._heads()
        snapshots = self._metadata.snapshots
        for done, snapshot in enumerate(snapshots):
            self._on_progress("manifest lists", done, len(snapshots))
            self._lists[snapshot.snapshot_id] = self._listed(snapshot, heads.get(snapshot.snapshot_id))
        for done, manifest in enumerate(self._manifests.values()):
            self._on_progress("manifests", done, len(self._manifests))
            self._read(manifest)
        for head in heads.values():
            head.finish()
        for snapshot in sorted(snapshots, key=lambda each: each.sequence_number):
            self._recount(snapshot)
        if self._deletes:
            self._check_deletes(list(heads.values()))

    def _heads(self) -> dict[int, HeadCheck]:
        heads: dict[int, HeadCheck] = {}
        for name, ref in self._metadata.refs.items():
            snapshot = self._metadata.snapshot(ref.snapshot_id)
            if snapshot is not None and snapshot.snapshot_id not in heads:
                shown = f"{ref.type} '{name}'"
                heads[snapshot.snapshot_id] = HeadCheck(self._metadata, snapshot, shown, self._findings)
        return heads

    def _listed(self, snapshot: Snapshot, head: HeadCheck | None) -> list[_Manifest] | None:
        """The manifests of a snapshot; None when its list cannot be read."""
        where = f"snapshot {snapshot.snapshot_id}"
        if snapshot.manifest_list is not None:
            self._reachable.need(snapshot.manifest_list, None, "manifest list", where)
        try:
            files = self._table.manifests(snapshot)
        except (MissingFileError, DataInvalidError, FeatureUnsupportedError) as error:
            self._unreadable("manifest-list", snapshot.manifest_list or where, error, [where])
            return None
        found: dict[_Manifest, None] = {}
        for file in files:
            manifest = self._manifests.setdefault((file.manifest_path, file.first_row_id), _Manifest(file))
            if manifest in found:
                what = f"is listed twice by {where}: its rows are read twice"
                self._findings.error("manifest-listed-twice", file.manifest_path, what, self._roll_back())
                continue
            manifest.snapshots += 1
            if head is not None:
                manifest.heads.append(head)
            self._reachable.need(file.manifest_path, file.manifest_length, "manifest", where)
            found[manifest] = None
        return list(found)

    def _read(self, manifest: _Manifest) -> None:
        file = manifest.file
        try:
            entries = read_manifest(
                self._table.io,
                file,
                self._metadata.specs_by_id,
                with_stats=file.content == ManifestContent.DELETES,
            )
        except (MissingFileError, DataInvalidError, FeatureUnsupportedError) as error:
            places = [head.name for head in manifest.heads] or [f"{manifest.snapshots} snapshots"]
            self._unreadable("manifest", file.manifest_path, error, places)
            return
        self._check_manifest(file, entries)
        manifest.recount = _recounted(entries)
        for head in manifest.heads:
            head.add(entries)
        for entry in entries:
            if entry.is_live:
                data_file = entry.data_file
                kind = "data file" if data_file.is_data else "delete file"
                self._reachable.need(
                    data_file.file_path, data_file.file_size_in_bytes, kind, file.manifest_path
                )

    def _unreadable(self, check: str, path: str, error: Exception, places: Sequence[str]) -> None:
        self._reachable.is_complete = False
        missing = isinstance(error, MissingFileError)
        what = "is missing" if missing else f"cannot be read: {error}"
        self._findings.error(
            f"{check}-{'missing' if missing else 'damaged'}",
            path,
            f"{what}; {', '.join(places)} cannot be read without it",
            f"restore the file, or {self._roll_back()}",
        )

    def _check_manifest(self, file: ManifestFile, entries: Iterable[ManifestEntry]) -> None:
        counted = dict.fromkeys(EntryStatus, (0, 0))
        for entry in entries:
            files, rows = counted[entry.status]
            counted[entry.status] = (files + 1, rows + entry.data_file.record_count)
            is_data = entry.data_file.content == FileContent.DATA
            if is_data != (file.content == ManifestContent.DATA):
                what = f"lists {entry.data_file.file_path}, which is of the other content (data or deletes)"
                self._findings.error("manifest-content", file.manifest_path, what, self._roll_back())
        for status, name in _STATUS_NAMES:
            recorded = (getattr(file, f"{name}_files_count"), getattr(file, f"{name}_rows_count"))
            wrong = [
                f"{say} {is_}"
                for say, is_ in zip(recorded, counted[status], strict=True)
                if say not in (None, is_)
            ]
            if wrong:
                what = (
                    f"its manifest list says {recorded[0]} {name} files with {recorded[1]} rows, it holds "
                    f"{counted[status][0]} with {counted[status][1]}: scans that count by metadata are wrong"
                )
                self._findings.error("manifest-counts", file.manifest_path, what, self._roll_back())

    def _recount(self, snapshot: Snapshot) -> None:
        """Compare a snapshot's summary with its manifests; a parent's errors are reported at the parent."""
        manifests = self._lists[snapshot.snapshot_id]
        recounts = [manifest.recount for manifest in manifests or ()]
        if manifests is None or None in recounts:
            return
        own = snapshot.snapshot_id
        counted = counter_names(
            _sum(each.added[own] for each in recounts if each is not None and own in each.added),
            _sum(each.removed[own] for each in recounts if each is not None and own in each.removed),
            _sum(each.live for each in recounts if each is not None),
        )
        is_ours = snapshot.summary.get("engine-name") == "streamlake"
        recorded = {key: _number(snapshot.summary.get(key, "0" if is_ours else None)) for key in counted}
        off = {
            key: value - counted[key] for key, value in recorded.items() if value not in (None, counted[key])
        }
        self._off[own] = off
        inherited = self._off.get(snapshot.parent_snapshot_id or -1, {})
        wrong = [key for key in off if not (key.startswith("total-") and inherited.get(key) == off[key])]
        if wrong:
            shown = ", ".join(f"{key} says {recorded[key]} and is {counted[key]}" for key in wrong)
            self._findings.add(
                Finding(
                    Severity.ERROR if is_ours else Severity.WARNING,
                    "summary-counters",
                    f"snapshot {own}",
                    f"its summary does not agree with its manifests: {shown}",
                    "reads are right, statistics are not; the next compaction counts again, or roll the "
                    "table back",
                )
            )

    def _check_deletes(self, heads: Sequence[HeadCheck]) -> None:
        total = sum(len(head.deletes) for head in heads)
        done = 0

        def step() -> None:
            nonlocal done
            self._on_progress("delete files", done, total)
            done += 1

        check = DeleteCheck(self._table.io, self._metadata.location, self._findings, step)
        for head in heads:
            check.check(head)

    def _roll_back(self) -> str:
        return (
            "roll the table back to a snapshot that does not need it (`streamlake inspect "
            f"{self._metadata.location} snapshots`)"
        )


def _recounted(entries: Iterable[ManifestEntry]) -> _Recount:
    recount = _Recount()
    for entry in entries:
        if entry.is_live:
            recount.live.count(entry.data_file)
        by = {EntryStatus.ADDED: recount.added, EntryStatus.DELETED: recount.removed}.get(entry.status)
        if by is not None and entry.snapshot_id is not None:
            by.setdefault(entry.snapshot_id, Counters()).count(entry.data_file)
    return recount


def _sum(parts: Iterable[Counters]) -> Counters:
    total = Counters()
    for part in parts:
        for each in fields(Counters):
            setattr(total, each.name, getattr(total, each.name) + getattr(part, each.name))
    return total


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
