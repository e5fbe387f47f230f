"""Row delta: adds rows and deletes single rows of other files, in one snapshot.

The operation of every streamed checkpoint with updates and deletes. It is a snapshot producer like an
overwrite, but the deletes are files of their own: equality deletes, position deletes or deletion vectors
(spec: Row-level Deletes). Invariants: after the commit no data file has two deletion vectors, every delete
file of a removed data file is removed with it, and everything named for removal was in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamlake.errors import DataInvalidError, FormatUpgradedError, HeadMovedError, InvalidOptionError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.expressions.binding import bind, to_expression
from streamlake.spec.expressions.expressions import TRUE, Expression
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.manifest_files import ManifestFiles
from streamlake.table.producers.delete_rules import NewDeletes, unfit
from streamlake.table.producers.isolated_producer import IsolatedProducer
from streamlake.table.producers.validation import History, Scope, refuse_other_vectors
from streamlake.table.table import Table


class RowDelta(IsolatedProducer):
    """Adds rows and deletes, and replaces deletes. Each attempt is checked against the refreshed table.

    Without `validate_from_snapshot` or `require_head`, the table's history is validated from its beginning.
    """

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._rules.fail_missing_files = True
        self._conflict_filter: Expression = TRUE
        self._required_paths: set[str] = set()
        self._skip_delete_operations = True
        self._head: tuple[int | None] | None = None
        self._start_known = False

    @property
    def operation(self) -> str:
        """`append`, `delete` or `overwrite`, according to the files that are added and removed."""
        adds_data = any(file.is_data for file in self._new.files)
        adds_deletes = any(not file.is_data for file in self._new.files)
        if not (adds_deletes or self._rules):
            return "append"
        return "delete" if adds_deletes and not adds_data else "overwrite"

    def add_rows(self, file: DataFile) -> RowDelta:
        """Add one data file."""
        if not file.is_data:
            raise InvalidOptionError(f"{file.file_path} is a delete file: add it with add_deletes")
        self._new.add(file, self._table.metadata)
        return self

    def add_deletes(self, file: DataFile) -> RowDelta:
        """Add one delete file or deletion vector.

        It applies to rows of earlier commits; if it deletes by position, also to rows of this one.
        """
        if file.is_data:
            raise InvalidOptionError(f"{file.file_path} is a data file: add it with add_rows")
        self._require_fit([file], self._table.metadata)
        self._new.add(file, self._table.metadata)
        return self

    def remove_deletes(self, file: DataFile) -> RowDelta:
        """Remove one delete file or deletion vector, which a newer one replaces.

        It is identified by path and content offset.
        """
        if file.is_data:
            raise InvalidOptionError(f"{file.file_path} is a data file: remove it with remove_rows")
        self._rules.remove_file(file)
        return self

    def remove_rows(self, file: DataFile) -> RowDelta:
        """Remove one data file whose rows are all deleted or were rewritten.

        Delete files for it alone are removed with it.
        """
        if not file.is_data:
            raise InvalidOptionError(f"{file.file_path} is a delete file: remove it with remove_deletes")
        self._rules.remove_file(file)
        return self

    def append_manifest(self, manifest: ManifestFile, files: Sequence[DataFile] | None = None) -> RowDelta:
        """Add the files of a staged delta manifest of data or deletes.

        The manifest joins the snapshot without being rewritten. With `files`,
        its entries, it need not be read.
        """
        base = self._table.metadata
        if files is None:
            files = [entry.data_file for entry in read_manifest(self._table.io, manifest, base.specs_by_id)]
        self._require_fit(files, base)
        self._new.stage(manifest, files, self._table.io, base)
        return self

    def conflict_detection_filter(self, row_filter: str | Expression) -> RowDelta:
        """Only files that may hold rows of this filter count as conflicts."""
        expression = to_expression(row_filter)
        bind(expression, self._table.schema)
        self._conflict_filter = expression
        return self

    def validate_data_files_exist(self, paths: Iterable[str]) -> RowDelta:
        """Refuse when others removed one of these data files, which rows are deleted from."""
        self._required_paths.update(paths)
        return self

    def validate_deleted_files(self) -> RowDelta:
        """Refuse also when a data file was removed because all of its rows were deleted."""
        self._skip_delete_operations = False
        return self

    def validate_no_conflicting_data_files(self) -> RowDelta:
        """Refuse when others added rows that this change should have seen."""
        self._refuse_data = True
        return self

    def validate_no_conflicting_delete_files(self) -> RowDelta:
        """Refuse when others deleted rows that this change may bring back or also delete."""
        self._refuse_deletes = True
        return self

    def validate_from_snapshot(self, snapshot_id: int | None) -> RowDelta:
        """Set the snapshot that the change was computed from; commits after it are validated.

        None: an empty table.
        """
        self._start_known = True
        return super().validate_from_snapshot(snapshot_id)

    def require_head(self, snapshot_id: int | None) -> RowDelta:
        """Commit onto this snapshot of the branch or not at all; None: onto an empty table.

        An attempt that finds another head raises HeadMovedError.
        """
        self._head = (snapshot_id,)
        return self if self._start_known else self.validate_from_snapshot(snapshot_id)

    def validate(self, base: TableMetadata, parent: Snapshot | None) -> None:
        """Raise when the change must not be committed onto this base.

        Raises HeadMovedError, ConflictValidationError, DataInvalidError when the commit contradicts itself,
        and FormatUpgradedError when the table's format version no longer takes the delete files.
        """
        found = None if parent is None else parent.snapshot_id
        if self._head is not None and self._head != (found,):
            raise HeadMovedError.of(self._table.name, self._head[0], found)
        deletes = self._deletes
        deletes.check(self._table.name)
        for file in deletes.files:
            reason = unfit(file, base.format_version)
            if reason is not None:
                raise FormatUpgradedError(
                    f"{self._table.name} was upgraded to format version {base.format_version} meanwhile: "
                    f"{file.file_path} cannot be committed, {reason}; load the table again and write the "
                    "deletes again"
                )
        self._rules.vectors = set(deletes.vectors)
        self._validate_history(base, parent, deletes)

    def verify(self, base: TableMetadata, manifests: Sequence[ManifestFile], files: ManifestFiles) -> None:
        """Check the delete files against the manifests that were written, see `NewDeletes.check_written`."""
        self._deletes.check_written(manifests, files, self._table.name)

    def _validate_history(self, base: TableMetadata, parent: Snapshot | None, deletes: NewDeletes) -> None:
        vectors = deletes.vectors
        scope = Scope(base, row_filter=self._conflict_filter)
        what = f"what this change looked at ({self._conflict_filter})"
        if vectors and not self._start_known:
            refuse_other_vectors(self._table, base, parent, vectors, self._rules.deletes)
        if (
            self._required_paths
            or self._refuse_data
            or self._refuse_deletes
            or (vectors and self._start_known)
        ):
            history = History.since(self._table, base, self._start_id, parent)
            if self._required_paths:
                history.refuse_removed_files(
                    self._required_paths, scope, skip_deletes=self._skip_delete_operations and not vectors
                )
            if self._refuse_data:
                history.refuse_added_data(scope, what)
            if self._refuse_deletes:
                history.refuse_deletes_for(self._rules.files.values(), scope)
                history.refuse_added_deletes(scope, what)
            if vectors and self._start_known:
                history.refuse_added_vectors(vectors, self._rules.deletes, scope)

    @property
    def _deletes(self) -> NewDeletes:
        removed = (*self._rules.files.values(), *self._rules.deletes.values())
        return NewDeletes(self._new.files, removed)

    def _require_fit(self, files: Iterable[DataFile], base: TableMetadata) -> None:
        for file in files:
            reason = None if file.is_data else unfit(file, base.format_version)
            if reason is not None:
                raise DataInvalidError(f"{self._table.name}: {file.file_path} cannot be committed: {reason}")
