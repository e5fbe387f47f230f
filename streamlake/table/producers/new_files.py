"""The files that one snapshot adds: given one by one, or as staged manifests that are added unchanged.

Owned by a snapshot producer. New manifests are written at the first attempt and reused by the next ones.
Invariants: a path is added once, and a staged manifest is neither rewritten nor deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO
from streamlake.table.manifests.manifest_files import ManifestFiles

_FILES_PER_MANIFEST = 20_000

FileIdentity = tuple[str, int | None]


class NewFiles:
    """Collects the added files of a snapshot, those of staged manifests included.

    `data_sequence_number` is that of data files that are given one by one (None: that of the snapshot).
    """

    def __init__(self) -> None:
        self.data_sequence_number: int | None = None
        self._loose: dict[FileIdentity, DataFile] = {}
        self._staged: list[ManifestFile] = []
        self._staged_files: dict[FileIdentity, DataFile] = {}
        self._written: dict[ManifestContent, list[ManifestFile]] = {}

    def __bool__(self) -> bool:
        return bool(self._loose or self._staged)

    @property
    def files(self) -> Iterator[DataFile]:
        """Every added file, data and deletes."""
        yield from self._loose.values()
        yield from self._staged_files.values()

    @property
    def oldest_data(self) -> int | None:
        """The data sequence number of added data files; None: there are none, or it is the snapshot's."""
        has_data = any(file.is_data for file in self._loose.values())
        return self.data_sequence_number if has_data else None

    @property
    def staged_paths(self) -> frozenset[str]:
        """The paths of the staged manifests."""
        return frozenset(manifest.manifest_path for manifest in self._staged)

    def add(self, file: DataFile, base: TableMetadata) -> None:
        """Add one file.

        Adding the same path again changes nothing. Raises DataInvalidError when it does not fit its spec.
        """
        spec = base.specs_by_id.get(file.spec_id)
        if spec is None:
            raise DataInvalidError(
                f"{file.file_path} was written for partition spec {file.spec_id}, which table "
                f"{base.location} does not have: was the table replaced since?"
            )
        if len(file.partition) != len(spec.fields):
            raise DataInvalidError(
                f"{file.file_path} has {len(file.partition)} partition values, its spec {file.spec_id} has"
                f" {len(spec.fields)} fields"
            )
        if file.identity in self._staged_files:
            raise DataInvalidError(f"{file.file_path} is already in a staged manifest of this commit")
        if file.identity not in self._loose:
            self._loose[file.identity] = file
            self._written.pop(_content_of(file), None)

    def remove(self, file: DataFile) -> None:
        """Add a file no longer that was added one by one."""
        if self._loose.pop(file.identity, None) is not None:
            self._written.pop(_content_of(file), None)

    def stage(
        self, manifest: ManifestFile, files: Sequence[DataFile] | None, io: FileIO, base: TableMetadata
    ) -> None:
        """Add a staged delta manifest. `files` are its files; they are read from it when None.

        Raises InvalidOptionError when it was committed before (it has a snapshot id or a sequence number) or
        holds anything but additions, DataInvalidError when a file of it is added twice.
        """
        if manifest.added_snapshot_id is not None or manifest.sequence_number is not None:
            raise InvalidOptionError(
                f"{manifest.manifest_path} belongs to snapshot {manifest.added_snapshot_id} already: only a "
                "staged manifest, without snapshot id and sequence number, can be appended"
            )
        if manifest.existing_files_count or manifest.deleted_files_count or manifest.first_row_id is not None:
            raise InvalidOptionError(
                f"{manifest.manifest_path} holds more than added files; stage additions only"
            )
        if files is None:
            files = [entry.data_file for entry in read_manifest(io, manifest, base.specs_by_id)]
        if manifest.added_files_count is not None and len(files) != manifest.added_files_count:
            raise DataInvalidError(
                f"{manifest.manifest_path} holds {len(files)} files, but {manifest.added_files_count} were "
                "staged"
            )
        for file in files:
            if file.is_data != (manifest.content == ManifestContent.DATA):
                raise DataInvalidError(
                    f"{file.file_path} holds {file.content.name}, {manifest.manifest_path} does not"
                )
            if file.identity in self._staged_files or file.identity in self._loose:
                raise DataInvalidError(f"{file.file_path} is in this commit twice ({manifest.manifest_path})")
            self._staged_files[file.identity] = file
        self._staged.append(manifest)

    def manifests(self, content: ManifestContent, files: ManifestFiles) -> list[ManifestFile]:
        """The manifests of one content: newly written ones, then the staged ones."""
        if content not in self._written:
            self._written[content] = self._write(content, files)
        return self._written[content] + [manifest for manifest in self._staged if manifest.content == content]

    def _write(self, content: ManifestContent, files: ManifestFiles) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = {}
        for file in self._loose.values():
            if _content_of(file) == content:
                by_spec.setdefault(file.spec_id, []).append(file)
        number = self.data_sequence_number if content == ManifestContent.DATA else None
        written = []
        for spec_id, group in by_spec.items():
            for start in range(0, len(group), _FILES_PER_MANIFEST):
                part = group[start : start + _FILES_PER_MANIFEST]
                entries = [
                    ManifestEntry(EntryStatus.ADDED, files.snapshot_id, number, None, file) for file in part
                ]
                written.append(files.write(entries, spec_id, content))
        return written


def _content_of(file: DataFile) -> ManifestContent:
    return ManifestContent.DATA if file.is_data else ManifestContent.DELETES
