"""Dynamic partition overwrite: the partitions that new files belong to are replaced, the others stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.isolated_producer import IsolatedProducer
from streamlake.table.producers.validation import History, Scope
from streamlake.table.table import Table


def _listed(spec_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(spec_ids)))


class ReplacePartitions(IsolatedProducer):
    """Replaces whole partitions of the files' own partition specs.

    An unpartitioned table is replaced entirely.

    Without files, nothing is replaced.
    """

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._one_spec = False
        self.set_summary({"replace-partitions": "true"})

    @property
    def operation(self) -> str:
        """`overwrite`, for the snapshot summary."""
        return "overwrite"

    def add_file(self, file: DataFile) -> ReplacePartitions:
        """Add one data file; its partition is replaced."""
        if file.content != FileContent.DATA:
            raise InvalidOptionError(
                f"{file.file_path} is a delete file, and a partition is replaced by data files"
            )
        self._new.add(file, self._table.metadata)
        self._replace_partition_of(file)
        return self

    def append_manifest(
        self, manifest: ManifestFile, files: Sequence[DataFile] | None = None
    ) -> ReplacePartitions:
        """Add the files of a staged delta manifest, which joins the snapshot without being rewritten."""
        if manifest.content != ManifestContent.DATA:
            raise InvalidOptionError(
                f"{manifest.manifest_path} lists delete files; a partition is replaced by data files"
            )
        base = self._table.metadata
        if files is None:
            files = [entry.data_file for entry in read_manifest(self._table.io, manifest, base.specs_by_id)]
        self._new.stage(manifest, files, self._table.io, base)
        for file in files:
            self._replace_partition_of(file)
        return self

    def validate_append_only(self) -> ReplacePartitions:
        """Refuse when a partition already holds data."""
        self._rules.fail_any_delete = True
        return self

    def validate_no_conflicting_data(self) -> ReplacePartitions:
        """Refuse when others added files to the replaced partitions."""
        self._refuse_data = True
        return self

    def validate_no_conflicting_deletes(self) -> ReplacePartitions:
        """Refuse when others deleted rows or files of the replaced partitions."""
        self._refuse_deletes = True
        return self

    def validate_one_spec(self) -> ReplacePartitions:
        """Refuse when the branch has rows under another partition spec than the new files'.

        Rows of the replaced partitions would stay there. Iceberg's dynamic overwrite leaves them silently.
        """
        self._one_spec = True
        return self

    def validate(self, base: TableMetadata, parent: Snapshot | None) -> None:
        """Raise ConflictValidationError for conflicting commits of others, as far as this was asked for."""
        if self._one_spec and self._rules.filter != TRUE:
            self._refuse_other_specs(base, parent)
        if not (self._refuse_data or self._refuse_deletes):
            return
        history = History.since(self._table, base, self._start_id, parent)
        if self._rules.filter == TRUE:
            scope, what = Scope(base, row_filter=TRUE), "the replaced table"
        else:
            scope, what = (
                Scope(base, partitions=list(self._rules.partitions.values())),
                "the replaced partitions",
            )
        if self._refuse_data:
            history.refuse_added_data(scope, what)
        if self._refuse_deletes:
            history.refuse_removed_data(scope, what)
            history.refuse_added_deletes(scope, what)

    def _refuse_other_specs(self, base: TableMetadata, parent: Snapshot | None) -> None:
        own = {spec_id for spec_id, _ in self._rules.partitions.values()}
        strange = {
            manifest.partition_spec_id
            for manifest in self._table.manifests(parent)
            if manifest.content == ManifestContent.DATA and manifest.may_have_live_files
        } - own
        if own and strange:
            raise ConflictValidationError(
                f"{base.location}: the partitions of spec {_listed(own)} cannot be replaced, because the "
                f"table has rows under partition spec {_listed(strange)}, which may belong to them and would "
                "stay. Rewrite these rows into the present spec first (Iceberg's rewrite_data_files), or use "
                "mode 'overwrite'"
            )

    def _replace_partition_of(self, file: DataFile) -> None:
        if self._table.metadata.spec_by_id(file.spec_id).is_unpartitioned:
            self._rules.remove_rows(TRUE)
        else:
            self._rules.remove_partition(file.spec_id, file.partition)
