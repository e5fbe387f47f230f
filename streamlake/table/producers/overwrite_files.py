"""Overwrite: replaces files that match a filter, or files named one by one, by new ones in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions.binding import bind, to_expression
from streamlake.spec.expressions.expressions import FALSE, TRUE, Expression
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.isolated_producer import IsolatedProducer
from streamlake.table.producers.validation import History, Scope, require_rows_match
from streamlake.table.table import Table


class OverwriteFiles(IsolatedProducer):
    """Removes whole data files and adds others.

    Without validation, it applies to whatever the newest version holds. With `isolation` (or the two
    `validate_no_...`) it refuses conflicting commits of other writers since `validate_from_snapshot`.
    """

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._conflict_filter: Expression | None = None
        self._added_must_match = False

    @property
    def operation(self) -> str:
        """`overwrite`, or `delete` when nothing is added, or `append` when nothing is removed."""
        if self._rules and not self._new:
            return "delete"
        return "overwrite" if self._rules else "append"

    def overwrite_by_filter(self, row_filter: str | Expression) -> OverwriteFiles:
        """Remove every file all of whose rows match.

        The commit fails when only a part of a file's rows matches.
        """
        expression = to_expression(row_filter)
        bind(expression, self._table.schema)
        self._rules.remove_rows(expression)
        return self

    def delete_file(self, file: DataFile) -> OverwriteFiles:
        """Remove one data file of the table."""
        if file.content != FileContent.DATA:
            raise InvalidOptionError(
                f"{file.file_path} is a delete file, and an overwrite replaces data files"
            )
        self._rules.remove_file(file)
        return self

    def add_file(self, file: DataFile) -> OverwriteFiles:
        """Add one data file."""
        if file.content != FileContent.DATA:
            raise InvalidOptionError(
                f"{file.file_path} is a delete file, and an overwrite adds data files only"
            )
        self._new.add(file, self._table.metadata)
        return self

    def append_manifest(
        self, manifest: ManifestFile, files: Sequence[DataFile] | None = None
    ) -> OverwriteFiles:
        """Add the files of a staged delta manifest, which joins the snapshot without being rewritten."""
        if manifest.content != ManifestContent.DATA:
            raise InvalidOptionError(
                f"{manifest.manifest_path} lists delete files, and an overwrite adds data files only"
            )
        self._new.stage(manifest, files, self._table.io, self._table.metadata)
        return self

    def conflict_detection_filter(self, row_filter: str | Expression) -> OverwriteFiles:
        """Only files that may hold rows of this filter count as conflicts."""
        self._conflict_filter = to_expression(row_filter)
        return self

    def validate_no_conflicting_data(self) -> OverwriteFiles:
        """Refuse when others added files that this overwrite should have seen."""
        self._refuse_data = True
        return self

    def validate_no_conflicting_deletes(self) -> OverwriteFiles:
        """Refuse when others deleted rows or files that this overwrite replaces."""
        self._refuse_deletes = True
        return self

    def validate_added_files_match_filter(self) -> OverwriteFiles:
        """Refuse added files with rows that the filter would not overwrite."""
        self._added_must_match = True
        return self

    def validate(self, base: TableMetadata, parent: Snapshot | None) -> None:
        """Raise ConflictValidationError for conflicting commits of others, as far as this was asked for.

        Raises DataInvalidError when added files must match the filter and may hold other rows.
        """
        rules = self._rules
        if self._added_must_match:
            require_rows_match(self._new.files, rules.filter, base)
        if not (self._refuse_data or self._refuse_deletes):
            return
        rules.fail_missing_files = True
        history = History.since(self._table, base, self._start_id, parent)
        if self._refuse_data:
            by_filter_only = rules.filter != FALSE and not rules.files
            default = rules.filter if by_filter_only else TRUE
            seen = default if self._conflict_filter is None else self._conflict_filter
            history.refuse_added_data(Scope(base, row_filter=seen), f"what is overwritten ({seen})")
        if self._refuse_deletes and rules.filter != FALSE:
            seen = rules.filter if self._conflict_filter is None else self._conflict_filter
            scope, what = Scope(base, row_filter=seen), f"what is overwritten ({seen})"
            history.refuse_added_deletes(scope, what)
            history.refuse_removed_data(scope, what)
        if self._refuse_deletes and rules.files:
            seen = TRUE if self._conflict_filter is None else self._conflict_filter
            history.refuse_deletes_for(rules.files.values(), Scope(base, row_filter=seen))
