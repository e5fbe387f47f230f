"""Manifest rewrite: the same files in other manifests, sorted by partition and of the table's target size.

Iceberg's RewriteManifests. Planning with a partition filter then reads the few manifests whose bounds match,
and no commit carries hundreds of small ones. Invariants: no file, row, sequence number or row id changes; a
manifest that another writer adds meanwhile is kept as it is; and the files are counted before and after.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamlake.errors import DataInvalidError
from streamlake.failpoints import failpoint
from streamlake.formats.manifests.encoded_entries import EncodedEntry
from streamlake.formats.manifests.manifests import with_counts
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.values import from_bytes
from streamlake.storage.file_io import FileIO
from streamlake.table.manifests.manifest_files import ManifestFiles, ManifestKey
from streamlake.table.options import ManifestOptions
from streamlake.table.producers.snapshot_producer import SnapshotContent, SnapshotProducer
from streamlake.table.producers.summary import SummaryCounts
from streamlake.table.table import Table

_SLACK = 1.25
"""A manifest becomes at most so many times the target size."""
_LEAST_TARGET = 64 * 1024
"""Below it, manifests are mostly headers, which cutting them makes no smaller."""
_SAMPLE = 500


class ReplaceManifests(SnapshotProducer):
    """Rewrites the manifests of a branch that `to_rewrite` names; it adds and removes no file."""

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._planned: list[list[ManifestFile]] | None = None
        self._rewritten: dict[tuple[ManifestKey, ...], list[ManifestFile]] = {}

    @property
    def operation(self) -> str:
        """`replace`, for the snapshot summary."""
        return "replace"

    def content(self, base: TableMetadata, parent: Snapshot | None, files: ManifestFiles) -> SnapshotContent:
        """The manifests that stay, and new ones for the others."""
        existing = self._table.manifests(parent)
        groups = self._groups(base, existing)
        gone = {manifest.manifest_path for group in groups for manifest in group}
        manifests = [each for each in existing if each.manifest_path not in gone and each.may_have_live_files]
        for group in groups:
            new = self._group(base, group, files)
            _require_same_files(self._table.io, group, new)
            manifests += new
        return SnapshotContent(manifests, SummaryCounts(), len(gone))

    def _groups(self, base: TableMetadata, existing: Sequence[ManifestFile]) -> list[list[ManifestFile]]:
        """What is rewritten: what the first attempt has, as long as the table has all of it.

        So manifests that others add meanwhile do not make it begin again.
        """
        if self._planned is None or not set().union(*self._planned) <= set(existing):
            self._planned = to_rewrite(base, existing)
        return self._planned

    def _group(
        self, base: TableMetadata, group: Sequence[ManifestFile], files: ManifestFiles
    ) -> list[ManifestFile]:
        """New manifests with the live files of a group; the same ones where a later attempt has the same."""
        key = tuple(map(files.key_of, group))
        if key not in self._rewritten:
            entries = [entry for manifest in group for entry in files.live(manifest).entries]
            entries.sort(key=lambda entry: _partition_order(entry.data_file))
            target = _target(base)
            count = _manifest_count(_stored_size(entries), target)
            new = []
            for part in _parts(entries, count):
                new.append(files.write(part, group[0].partition_spec_id, group[0].content))
                failpoint("manifest-rewritten")
            self._rewritten[key] = new
        return self._rewritten[key]


def to_rewrite(base: TableMetadata, manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """The manifests that are worth rewriting, together with those of the same spec and content.

    There are reasons for it where a spec has more than twice as many manifests as their bytes need, where
    their ranges of the first partition field overlap in more than their ends, or where one is too large. Then
    small ones are rewritten, large ones, those that overlap, and all that lie between.
    """
    target = _target(base)
    groups: dict[tuple[int, int], list[ManifestFile]] = {}
    for manifest in manifests:
        if manifest.may_have_live_files:
            groups.setdefault((manifest.partition_spec_id, manifest.content), []).append(manifest)
    chosen = (_worth_it(base, group, target) for group in groups.values())
    return [group for group in chosen if group]


def _worth_it(base: TableMetadata, group: Sequence[ManifestFile], target: int) -> list[ManifestFile]:
    needed = _manifest_count(sum(each.manifest_length for each in group), target)
    ranges = _ranges(base, group)
    overlapping = _overlapping(ranges)
    large = {
        each.manifest_path
        for each in group
        if each.manifest_length > 2 * target and _listed_count(each) not in (0, 1)
    }
    if not (overlapping or large or len(group) > 2 * needed):
        return []
    small = {each.manifest_path for each in group if 2 * each.manifest_length < target}
    chosen = small | large | overlapping
    within = [ranges[path] for path in chosen if path in ranges]
    if within:
        lower, upper = min(each[0] for each in within), max(each[1] for each in within)
        chosen |= {path for path, (low, high) in ranges.items() if low < upper and lower < high}
    found = [each for each in group if each.manifest_path in chosen]
    return found if len(found) > 1 or large else []


def _ranges(base: TableMetadata, group: Sequence[ManifestFile]) -> dict[str, tuple[Any, Any]]:
    """The range of the first partition field of each manifest, by path, where it is known."""
    spec = base.spec_by_id(group[0].partition_spec_id)
    if not spec.fields:
        return {}
    type_ = spec.partition_type(base.schema).fields[0].type
    found = {}
    for manifest in group:
        first = manifest.partitions[0] if manifest.partitions else None
        if first is not None and first.lower_bound is not None and first.upper_bound is not None:
            bounds = from_bytes(type_, first.lower_bound), from_bytes(type_, first.upper_bound)
            found[manifest.manifest_path] = bounds
    return found


def _overlapping(ranges: Mapping[str, tuple[Any, Any]]) -> set[str]:
    """The manifests whose ranges overlap with that of another one in more than an end."""
    found: set[str] = set()
    furthest: tuple[str, Any] | None = None
    for path, (lower, upper) in sorted(ranges.items(), key=lambda item: item[1]):
        if furthest is not None and furthest[1] > lower:
            found |= {furthest[0], path}
        if furthest is None or upper > furthest[1]:
            furthest = path, upper
    return found


def _target(base: TableMetadata) -> int:
    return max(ManifestOptions.parse(base.properties).target_size_bytes, _LEAST_TARGET)


def _manifest_count(size: int, target: int) -> int:
    """How many manifests of about the target size these bytes become; a little more is no reason for one."""
    return max(1, math.ceil(size / (target * _SLACK)))


def _stored_size(entries: Sequence[EncodedEntry]) -> int:
    """About how many bytes these entries take in a manifest, from how well some of them compress."""
    sample = b"".join(entry.encoded for entry in entries[:_SAMPLE])
    ratio = len(zlib.compress(sample)) / max(1, len(sample))
    return round(ratio * sum(len(entry.encoded) for entry in entries))


def _parts(entries: Sequence[EncodedEntry], count: int) -> list[list[EncodedEntry]]:
    """`count` consecutive parts of about the same number of bytes, or fewer where entries are few."""
    share = sum(len(entry.encoded) for entry in entries) / count
    parts: list[list[EncodedEntry]] = [[]]
    used = 0
    for entry in entries:
        if parts[-1] and used + len(entry.encoded) / 2 > share * len(parts):
            parts.append([])
        parts[-1].append(entry)
        used += len(entry.encoded)
    return [part for part in parts if part]


def _partition_order(file: DataFile) -> tuple[Any, ...]:
    """A key that sorts files by partition, nulls first; deletes come as the files that they are for."""
    return tuple([(value is not None, value if value is not None else 0) for value in file.partition])


def _require_same_files(io: FileIO, before: Sequence[ManifestFile], after: Sequence[ManifestFile]) -> None:
    counts = [sum(_live_count(io, manifest) for manifest in manifests) for manifests in (before, after)]
    if counts[0] != counts[1]:
        raise DataInvalidError(
            f"{before[0].manifest_path} and {len(before) - 1} more manifests list {counts[0]} files, but the "
            f"manifests made of them {counts[1]}; nothing was committed: run `streamlake doctor` on the table"
        )


def _live_count(io: FileIO, manifest: ManifestFile) -> int:
    found = _listed_count(manifest)
    return _listed_count(with_counts(io, manifest)) or 0 if found is None else found


def _listed_count(manifest: ManifestFile) -> int | None:
    """How many live files a manifest list says that a manifest has; None where it does not say."""
    if manifest.added_files_count is None or manifest.existing_files_count is None:
        return None
    return manifest.added_files_count + manifest.existing_files_count
