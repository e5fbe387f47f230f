"""Removes files from a snapshot: the rules for which files are removed, and the manifests without them.

`RemovalRules` is what an operation collects (data and delete files, partitions, a row filter).
`ManifestFilter` applies it to the parent's manifests on each attempt. A manifest that loses nothing is kept
as it is; one that loses files is rewritten, with the removed files as DELETED entries of this snapshot.
Invariant: a file is removed whole or not at all; a row filter that matches some but not all rows of a file is
an error (spec: Manifest Entry Fields; Scan Planning).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamlake.errors import ConflictValidationError
from streamlake.formats.manifests.encoded_entries import EncodedEntry, complete_file
from streamlake.spec.expressions.expressions import FALSE, Expression, any_of
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionKey, may_contain, partition_key
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.file_matching import FileMatcher
from streamlake.table.manifests.held_entries import LiveEntries
from streamlake.table.manifests.manifest_files import ManifestFiles, ManifestKey


@dataclass
class RemovalRules:
    """The files to remove. Collected before the commit, constant while it is retried.

    `files` are data files by path, `deletes` delete files by identity. `vectors` are the paths of data files
    that get a new deletion vector, so that an older one must not stay.
    """

    files: dict[str, DataFile] = field(default_factory=dict)
    deletes: dict[tuple[str, int | None], DataFile] = field(default_factory=dict)
    vectors: set[str] = field(default_factory=set)
    partitions: dict[PartitionKey, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    filter: Expression = FALSE
    fail_any_delete: bool = False
    fail_missing_files: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.deletes or self.partitions or self.filter != FALSE)

    @property
    def by_name_only(self) -> bool:
        """Whether no file is removed because of its partition or its rows."""
        return not self.partitions and self.filter == FALSE

    def remove_file(self, file: DataFile) -> None:
        """Remove one data or delete file."""
        if file.is_data:
            self.files[file.file_path] = file
        else:
            self.deletes[file.identity] = file

    def remove_partition(self, spec_id: int, partition: tuple[Any, ...]) -> None:
        """Remove all files of one partition of one spec."""
        self.partitions[partition_key(spec_id, partition)] = (spec_id, partition)

    def remove_rows(self, row_filter: Expression) -> None:
        """Remove all files whose rows all match the filter, in addition to earlier filters."""
        self.filter = any_of(self.filter, row_filter)

    def tuples_of(self, spec_id: int, content: ManifestContent) -> list[tuple[Any, ...]]:
        """The partitions of one spec that can lose files, by name or by partition, each once."""
        named = (self.files if content == ManifestContent.DATA else self.deletes).values()
        replaced = [values for own_id, values in self.partitions.values() if own_id == spec_id]
        return _distinct(spec_id, [file.partition for file in named if file.spec_id == spec_id] + replaced)


@dataclass(frozen=True)
class Filtered:
    """Manifests after removal, and the removed files (each once)."""

    manifests: list[ManifestFile]
    removed: list[DataFile]
    duplicates: int
    replaced: int


class ManifestFilter:
    """Applies the rules for one producer. Rewritten manifests are kept over attempts, by their source."""

    def __init__(self, files: ManifestFiles, rules: RemovalRules) -> None:
        self._files = files
        self._rules = rules
        self._tuples: dict[tuple[int, ManifestContent], list[tuple[Any, ...]]] = {}
        self._rewritten: dict[ManifestKey, tuple[ManifestFile, list[DataFile]]] = {}
        self._rewritten_deletes: dict[
            tuple[ManifestKey, frozenset[str], int], tuple[ManifestFile, list[DataFile]]
        ] = {}

    def filter_data(self, manifests: Sequence[ManifestFile], base: TableMetadata) -> Filtered:
        """The data manifests without the files that the rules remove.

        Raises ConflictValidationError when a file would have to be split, when `fail_any_delete` is set and a
        file would be removed, or when `fail_missing_files` is set and a named file is missing.
        """
        matcher = FileMatcher(base.schema, self._rules.filter)
        results = [self._filter_manifest(manifest, base, matcher) for manifest in manifests]
        filtered = _collect(manifests, results)
        self._require_found(self._rules.files.values(), filtered.removed)
        return filtered

    def filter_deletes(
        self, manifests: Sequence[ManifestFile], base: TableMetadata, gone: Sequence[DataFile], oldest: int
    ) -> Filtered:
        """The delete manifests without the delete files that are removed.

        Removed are those that the rules name, and those that delete nothing any more. The latter are those in
        a removed partition, of a removed data file (`gone`), or older than every live data file (`oldest`).
        Raises ConflictValidationError when `fail_missing_files` is set and a named file is missing, or when a
        deletion vector would stay beside a new one.
        """
        matcher = FileMatcher(base.schema, self._rules.filter)
        targets = _Targets(gone)
        results = [self._filter_deletes(manifest, base, matcher, targets, oldest) for manifest in manifests]
        filtered = _collect(manifests, results)
        self._require_found(self._rules.deletes.values(), filtered.removed)
        return filtered

    def _filter_manifest(
        self, manifest: ManifestFile, base: TableMetadata, matcher: FileMatcher
    ) -> tuple[ManifestFile, list[DataFile]]:
        cached = self._rewritten.get(self._files.key_of(manifest))
        if cached is not None:
            return cached
        if not manifest.may_have_live_files or not self._may_lose_files(manifest, base, matcher):
            return manifest, []
        live = self._files.live(manifest)
        if self._rules.by_name_only and self._rules.files.keys().isdisjoint(live.paths):
            return manifest, []
        if self._rules.by_name_only:
            removed, kept = _parted(live, self._rules.files)
        else:
            removed, kept = [], []
            for entry in live.entries:
                (removed if self._goes(entry, base, matcher) else kept).append(entry)
        if not removed:
            return manifest, []
        if self._rules.fail_any_delete:
            file = removed[0].data_file
            partition = (
                base.spec_by_id(file.spec_id).partition_path(file.partition, base.schema) or "the table"
            )
            raise ConflictValidationError(
                f"{base.location}: {partition} already holds data ({file.file_path}), and only an append was "
                "allowed; write to another partition, or overwrite without validate_append_only"
            )
        result = self._rewrite(manifest, kept, removed)
        self._rewritten[self._files.key_of(manifest)] = result
        return result

    def _filter_deletes(
        self,
        manifest: ManifestFile,
        base: TableMetadata,
        matcher: FileMatcher,
        targets: _Targets,
        oldest: int,
    ) -> tuple[ManifestFile, list[DataFile]]:
        if not manifest.may_have_live_files or not (
            targets.may_be_referenced_in(manifest, base) or self._may_lose_files(manifest, base, matcher)
        ):
            return manifest, []
        key = (self._files.key_of(manifest), targets.paths, oldest)
        if key not in self._rewritten_deletes:
            live = self._files.live(manifest)
            if self._keeps_deletes(live, targets, oldest):
                return manifest, []
            kept: list[EncodedEntry] = []
            removed: list[EncodedEntry] = []
            for entry in live.entries:
                goes = self._goes_or_is_pointless(entry, base, matcher, targets.paths, oldest)
                (removed if goes else kept).append(entry)
            self._refuse_second_vectors(kept, base)
            self._rewritten_deletes[key] = (
                self._rewrite(manifest, kept, removed) if removed else (manifest, [])
            )
        return self._rewritten_deletes[key]

    def _keeps_deletes(self, live: LiveEntries, targets: _Targets, oldest: int) -> bool:
        """Whether no delete file of a manifest is removed or is a deletion vector that must not stay."""
        rules = self._rules
        return (
            rules.by_name_only
            and live.paths.isdisjoint(path for path, _ in rules.deletes)
            and targets.paths.isdisjoint(live.targets)
            and rules.vectors.isdisjoint(live.targets)
            and (live.oldest is None or live.oldest >= oldest)
        )

    def _rewrite(
        self, manifest: ManifestFile, kept: list[EncodedEntry], removed: list[EncodedEntry]
    ) -> tuple[ManifestFile, list[DataFile]]:
        own = self._files.snapshot_id
        entries = list(kept)
        entries += [replace(entry, status=EntryStatus.DELETED, snapshot_id=own) for entry in removed]
        rewritten = self._files.write(entries, manifest.partition_spec_id, manifest.content)
        return rewritten, [entry.data_file for entry in removed]

    def _may_lose_files(self, manifest: ManifestFile, base: TableMetadata, matcher: FileMatcher) -> bool:
        spec = base.spec_by_id(manifest.partition_spec_id)
        key = (spec.spec_id, manifest.content)
        if key not in self._tuples:
            self._tuples[key] = self._rules.tuples_of(*key)
        tuples = self._tuples[key]
        if tuples and may_contain(manifest, tuples, spec, base.schema):
            return True
        return matcher.manifest_might_match(manifest, spec)

    def _goes(self, entry: EncodedEntry, base: TableMetadata, matcher: FileMatcher) -> bool:
        rules, file = self._rules, entry.data_file
        if file.file_path in rules.files or partition_key(file.spec_id, file.partition) in rules.partitions:
            return True
        spec = base.spec_by_id(file.spec_id)
        if matcher.partition_excludes(file, spec):
            return False
        if matcher.partition_must_match(file, spec):
            return True
        file = complete_file(entry)
        if not matcher.might_match(file, spec):
            return False
        if matcher.must_match(file, spec):
            return True
        raise ConflictValidationError(
            f"{base.location}: the filter {rules.filter} may match some but not all rows of "
            f"{file.file_path}, and an overwrite removes whole files only; align the filter with the "
            "partitioning, or rewrite that file"
        )

    def _goes_or_is_pointless(
        self,
        entry: ManifestEntry,
        base: TableMetadata,
        matcher: FileMatcher,
        paths: frozenset[str],
        oldest: int,
    ) -> bool:
        file = entry.data_file
        if (file.file_path, file.content_offset) in self._rules.deletes:
            return True
        if paths and file.deletes_from in paths:
            return True
        if entry.sequence_number is not None and 0 < entry.sequence_number < oldest:
            return True
        if self._rules.by_name_only:
            return False
        if partition_key(file.spec_id, file.partition) in self._rules.partitions:
            return True
        return matcher.partition_must_match(file, base.spec_by_id(file.spec_id))

    def _refuse_second_vectors(self, kept: Iterable[ManifestEntry], base: TableMetadata) -> None:
        vectors = self._rules.vectors
        for entry in kept if vectors else ():
            file = entry.data_file
            if file.referenced_data_file in vectors and file.is_deletion_vector:
                raise ConflictValidationError(
                    f"{base.location}: {file.referenced_data_file} has a deletion vector that the new one "
                    f"does not replace (in {file.file_path}, at {file.content_offset}); read the table "
                    "again, merge both and redo the change"
                )

    def _require_found(self, named: Iterable[DataFile], removed: Iterable[DataFile]) -> None:
        if self._rules.fail_missing_files:
            found = {file.identity for file in removed}
            missing = sorted(file.file_path for file in named if file.identity not in found)
            if missing:
                raise ConflictValidationError(
                    f"{len(missing)} file(s) to be replaced are no longer in the table, for example "
                    f"{missing[0]}; read the table again and redo the change"
                )


class _Targets:
    """Removed data files, as targets of delete files. A delete file is in the partition of its data file."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.paths = frozenset(file.file_path for file in files)
        by_spec: dict[int, list[tuple[Any, ...]]] = {}
        for file in files:
            by_spec.setdefault(file.spec_id, []).append(file.partition)
        self._tuples = {spec_id: _distinct(spec_id, values) for spec_id, values in by_spec.items()}

    def may_be_referenced_in(self, manifest: ManifestFile, base: TableMetadata) -> bool:
        tuples = self._tuples.get(manifest.partition_spec_id)
        spec = base.spec_by_id(manifest.partition_spec_id)
        return tuples is not None and may_contain(manifest, tuples, spec, base.schema)


def _parted(live: LiveEntries, paths: Container[str]) -> tuple[list[EncodedEntry], list[EncodedEntry]]:
    """The entries of files with these paths, and the others."""
    gone = [entry for entry in live.entries if entry.data_file.file_path in paths]
    return gone, [entry for entry in live.entries if entry.data_file.file_path not in paths]


def _distinct(spec_id: int, partitions: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list({partition_key(spec_id, values): values for values in partitions}.values())


def _collect(
    manifests: Sequence[ManifestFile], results: Sequence[tuple[ManifestFile, list[DataFile]]]
) -> Filtered:
    removed: dict[tuple[str, int | None], DataFile] = {}
    count = 0
    for _, files in results:
        count += len(files)
        removed.update({file.identity: file for file in files})
    replaced = sum(1 for before, (after, _) in zip(manifests, results, strict=True) if after is not before)
    return Filtered([after for after, _ in results], list(removed.values()), count - len(removed), replaced)


def oldest_sequence_number(manifests: Iterable[ManifestFile], default: int) -> int:
    """The smallest data sequence number of live data files, according to the manifests."""
    known = [
        manifest.min_sequence_number
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        and manifest.min_sequence_number is not None
        and manifest.may_have_live_files
    ]
    return min(known, default=default)
