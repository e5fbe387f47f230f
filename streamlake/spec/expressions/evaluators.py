"""Evaluates filters on manifests and data files: whether one can hold a row that matches.

The counts and bounds of manifests and data files become `ValueRange`s; `value_range` decides. A column
without statistics is unknown, never absent. Spec: Scan Planning; Field-level Metrics and Statistics.
"""

from __future__ import annotations

from streamlake.spec.expressions.expressions import FALSE, TRUE, BoundPredicate, Expression, evaluate, rewrite
from streamlake.spec.expressions.value_range import (
    ValueRange,
    decode_bound,
    is_floating,
    may_match,
    must_match,
)
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import FieldSummary, ManifestFile
from streamlake.spec.types.data_types import IcebergType, PrimitiveType


def manifest_may_match(projected: Expression, manifest: ManifestFile) -> bool:
    """Whether a manifest may hold a file whose partition satisfies `projected` (an inclusive projection)."""
    summaries = manifest.partitions
    if not manifest.may_have_live_files:
        return False
    if summaries is None:
        return True

    def test(predicate: BoundPredicate) -> bool:
        at = predicate.ref.position
        if at is None or at >= len(summaries):
            return True
        return may_match(predicate, _summary_range(predicate.ref.type, summaries[at]))

    return evaluate(projected, test)


def _summary_range(type_: IcebergType, summary: FieldSummary) -> ValueRange:
    return ValueRange(
        type=type_,
        lower=decode_bound(type_, summary.lower_bound),
        upper=decode_bound(type_, summary.upper_bound),
        may_be_null=summary.contains_null,
        may_be_nan=is_floating(type_) and summary.contains_nan is not False,
    )


def column_range(data_file: DataFile, field_id: int, type_: IcebergType) -> ValueRange:
    """The values that one column of a data file may have, from the file's metrics."""
    if not isinstance(type_, PrimitiveType):
        return ValueRange(type_)
    floating = is_floating(type_)
    may_be_null, may_be_nan, may_be_value = True, floating, True
    values = (data_file.value_counts or {}).get(field_id)
    nulls = (data_file.null_value_counts or {}).get(field_id)
    nans = (data_file.nan_value_counts or {}).get(field_id)
    # Fewer values than rows: the counts leave out rows (for example of a null parent
    # struct), so they prove nothing.
    if values is not None and nulls is not None and values >= data_file.record_count and 0 <= nulls <= values:
        present = values - nulls
        may_be_null = nulls > 0
        may_be_nan = floating and present > 0 and nans != 0
        may_be_value = present > 0 and not (floating and nans is not None and nans >= present)
    return ValueRange(
        type=type_,
        lower=decode_bound(type_, (data_file.lower_bounds or {}).get(field_id)),
        upper=decode_bound(type_, (data_file.upper_bounds or {}).get(field_id)),
        may_be_null=may_be_null,
        may_be_nan=may_be_nan,
        may_be_value=may_be_value,
    )


def _range_of(predicate: BoundPredicate, data_file: DataFile) -> ValueRange:
    return column_range(data_file, predicate.ref.field_id, predicate.ref.type)


def file_may_match(bound: Expression, data_file: DataFile) -> bool:
    """Inclusive: false only when the file's metrics prove that none of its rows matches `bound`."""
    if data_file.record_count == 0:
        return False
    return evaluate(bound, lambda predicate: may_match(predicate, _range_of(predicate, data_file)))


def file_must_match(bound: Expression, data_file: DataFile) -> bool:
    """Strict: true only when the file's metrics prove that all of its rows match `bound`."""
    if data_file.record_count == 0:
        return True
    return evaluate(bound, lambda predicate: must_match(predicate, _range_of(predicate, data_file)))


def file_residual(bound: Expression, data_file: DataFile) -> Expression:
    """The rest of the filter for the rows of a file.

    Predicates that the file's metrics decide become true or false.
    """

    def leaf(predicate: BoundPredicate) -> Expression:
        known = _range_of(predicate, data_file)
        if must_match(predicate, known):
            return TRUE
        return predicate if may_match(predicate, known) else FALSE

    return rewrite(bound, leaf)
