"""Matches a row filter against manifests and files: no row, some rows or all rows of them match.

Combines the partition projections and metrics evaluators of `spec` into the three answers that overwrites and
conflict validation need. Invariant: `might_match` errs towards true, `must_match` towards false.
"""

from __future__ import annotations

from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.evaluators import file_may_match, file_must_match, manifest_may_match
from streamlake.spec.expressions.expressions import FALSE, TRUE, Expression
from streamlake.spec.expressions.projection import inclusive_projection, residual
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.schema import Schema


class FileMatcher:
    """One filter, bound to one schema. Residuals are cached per partition."""

    def __init__(self, schema: Schema, row_filter: str | Expression) -> None:
        self._bound = bind(row_filter, schema)
        self._projections: dict[int, Expression] = {}
        self._residuals: dict[PartitionKey, Expression] = {}

    def manifest_might_match(self, manifest: ManifestFile, spec: PartitionSpec) -> bool:
        """Whether a file in the manifest might hold a matching row."""
        if self._bound == FALSE:
            return False
        if spec.spec_id not in self._projections:
            self._projections[spec.spec_id] = inclusive_projection(self._bound, spec)
        return manifest_may_match(self._projections[spec.spec_id], manifest)

    def might_match(self, file: DataFile, spec: PartitionSpec) -> bool:
        """Whether the file might hold a matching row.

        A filter that is always true matches an empty file too.
        """
        rest = self._residual(file, spec)
        return rest == TRUE or (rest != FALSE and file_may_match(rest, file))

    def must_match(self, file: DataFile, spec: PartitionSpec) -> bool:
        """Whether every row of the file is known to match."""
        return file_must_match(self._residual(file, spec), file)

    def partition_must_match(self, file: DataFile, spec: PartitionSpec) -> bool:
        """Whether every row of the file's partition is known to match."""
        return self._residual(file, spec) == TRUE

    def partition_excludes(self, file: DataFile, spec: PartitionSpec) -> bool:
        """Whether no row of the file's partition can match."""
        return self._residual(file, spec) == FALSE

    def _residual(self, file: DataFile, spec: PartitionSpec) -> Expression:
        if self._bound in (TRUE, FALSE):
            return self._bound
        key = partition_key(file.spec_id, file.partition)
        if key not in self._residuals:
            self._residuals[key] = residual(self._bound, spec, file.partition)
        return self._residuals[key]
