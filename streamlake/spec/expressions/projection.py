"""Projects row filters to partition filters, by the spec that wrote the files (spec: Scan Planning).

The inclusive projection is true for every partition that may hold a matching row: it selects manifests and
files. The strict projection is true only for partitions whose rows all match. Together they give the
residual, the part of the filter that still has to be tested on a file's rows. A projected predicate refers to
a partition field by its position in the partition tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamlake.errors import StreamlakeError
from streamlake.spec.expressions.expressions import (
    FALSE,
    TRUE,
    BoundPredicate,
    BoundReference,
    Expression,
    Operation,
    all_of,
    any_of,
    evaluate,
    rewrite,
)
from streamlake.spec.expressions.like_pattern import literal_prefix
from streamlake.spec.expressions.value_range import value_matches
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Truncate,
    UnknownTransform,
    Void,
    Year,
)
from streamlake.spec.types.data_types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
)
from streamlake.spec.types.values import scaled, unscaled

Projected = BoundPredicate | None
_NULL_TESTS = (Operation.IS_NULL, Operation.NOT_NULL)
_NEGATIVE = (Operation.NOT_EQ, Operation.NOT_IN, Operation.NOT_STARTS_WITH, Operation.NOT_LIKE)


def inclusive_projection(bound: Expression, spec: PartitionSpec) -> Expression:
    """A partition filter that is true wherever a row of the partition may match `bound`."""

    def leaf(predicate: BoundPredicate) -> Expression:
        parts = (
            _project(predicate, part, at, _inclusive)
            for at, part in enumerate(spec.fields)
            if _reads(part, predicate)
        )
        return all_of(*(part for part in parts if part is not None))

    return rewrite(bound, leaf)


def strict_projection(bound: Expression, spec: PartitionSpec) -> Expression:
    """A partition filter that is true only where every row of the partition matches `bound`."""

    def leaf(predicate: BoundPredicate) -> Expression:
        parts = (
            _project(predicate, part, at, _strict)
            for at, part in enumerate(spec.fields)
            if _reads(part, predicate)
        )
        return any_of(*(part for part in parts if part is not None))

    return rewrite(bound, leaf)


def partition_matches(projected: Expression, partition: tuple[Any, ...]) -> bool:
    """Whether a projected filter is true for a partition tuple."""
    return evaluate(
        projected, lambda predicate: value_matches(predicate, partition[predicate.ref.position or 0])
    )


def residual(bound: Expression, spec: PartitionSpec, partition: tuple[Any, ...]) -> Expression:
    """The rest of the filter for the rows of one partition.

    Predicates that the partition decides become true or false.
    """

    def leaf(predicate: BoundPredicate) -> Expression:
        if partition_matches(strict_projection(predicate, spec), partition):
            return TRUE
        if not partition_matches(inclusive_projection(predicate, spec), partition):
            return FALSE
        return predicate

    return rewrite(bound, leaf)


def _reads(part: PartitionField, predicate: BoundPredicate) -> bool:
    return part.source_id == predicate.ref.field_id and "source-ids" not in part.extra


def _project(
    predicate: BoundPredicate,
    part: PartitionField,
    position: int,
    kind: Callable[[BoundPredicate, Any, BoundReference], Projected],
) -> Expression | None:
    transform, source = part.transform, predicate.ref.type
    if isinstance(transform, (Void, UnknownTransform)):
        return None
    ref = BoundReference(part.field_id, part.name, transform.result_type(source), position)
    if isinstance(transform, Identity) or predicate.op in _NULL_TESTS:
        return replace(predicate, ref=ref)
    if predicate.op in (Operation.IS_NAN, Operation.NOT_NAN):
        return None
    try:
        return _with_wrapped(kind(predicate, transform, ref), kind is _inclusive, predicate, transform, ref)
    except (StreamlakeError, OverflowError, ValueError):
        return None  # a literal for which the transform has no value, such as a year after 9999


def _with_wrapped(
    projected: Projected, inclusive: bool, predicate: BoundPredicate, transform: Any, ref: BoundReference
) -> Expression | None:
    """The projection, corrected for the lowest integers.

    Their truncation overflows to a high number (as in Java).
    """
    bits = 32 if isinstance(ref.type, IntegerType) else 64 if isinstance(ref.type, LongType) else 0
    lowest = -(2**bits) // 2
    if projected is None or not isinstance(transform, Truncate) or not bits or lowest % transform.width == 0:
        return projected
    op, wrapped = predicate.op, lowest - lowest % transform.width + 2**bits
    near = any(literal < lowest + transform.width for literal in predicate.literals)
    if inclusive and (op in (Operation.LT, Operation.LT_EQ) or near):
        return any_of(projected, BoundPredicate(Operation.EQ, ref, (wrapped,)))
    if not inclusive and (op in (Operation.GT, Operation.GT_EQ) or near):
        return all_of(projected, BoundPredicate(Operation.NOT_EQ, ref, (wrapped,)))
    return projected


def _inclusive(predicate: BoundPredicate, transform: Any, ref: BoundReference) -> Projected:
    op, source = predicate.op, predicate.ref.type
    if op in (Operation.EQ, Operation.IN):
        values = tuple(dict.fromkeys(transform.apply(value, source) for value in predicate.literals))
        return _repaired(_made(op, ref, values), transform, source)
    if isinstance(transform, Bucket):
        return None
    if isinstance(transform, Truncate) and isinstance(source, (StringType, BinaryType)):
        return _inclusive_text(predicate, transform, ref)
    if op in _NEGATIVE:
        return None
    literal = predicate.literal
    if op in (Operation.LT, Operation.GT):
        literal = _step(literal, source, -1 if op == Operation.LT else 1)
    closed = Operation.LT_EQ if op in (Operation.LT, Operation.LT_EQ) else Operation.GT_EQ
    return _repaired(BoundPredicate(closed, ref, (transform.apply(literal, source),)), transform, source)


def _inclusive_text(predicate: BoundPredicate, transform: Truncate, ref: BoundReference) -> Projected:
    op, literal = predicate.op, predicate.literal
    if op in (Operation.NOT_EQ, Operation.NOT_IN, Operation.NOT_LIKE):
        return None
    if op == Operation.LIKE:
        literal = literal_prefix(literal)[0]
        op = Operation.STARTS_WITH
    cut = transform.apply(literal, predicate.ref.type)
    if op == Operation.NOT_STARTS_WITH:
        return _prefix(op, ref, literal, transform.width) if len(literal) <= transform.width else None
    if op == Operation.STARTS_WITH:
        return _prefix(op, ref, cut, transform.width)
    return BoundPredicate(
        Operation.LT_EQ if op in (Operation.LT, Operation.LT_EQ) else Operation.GT_EQ, ref, (cut,)
    )


def _prefix(op: Operation, ref: BoundReference, prefix: str, width: int) -> BoundPredicate:
    """A prefix test on values cut to `width`; a prefix of that length is the whole value."""
    if len(prefix) < width:
        return BoundPredicate(op, ref, (prefix,))
    return BoundPredicate(Operation.EQ if op == Operation.STARTS_WITH else Operation.NOT_EQ, ref, (prefix,))


def _strict(predicate: BoundPredicate, transform: Any, ref: BoundReference) -> Projected:
    op, source = predicate.op, predicate.ref.type
    if op in (Operation.NOT_EQ, Operation.NOT_IN):
        values = tuple(dict.fromkeys(transform.apply(value, source) for value in predicate.literals))
        return _repaired_strict(_made(op, ref, values), transform, source)
    if isinstance(transform, Bucket) or op in (Operation.EQ, Operation.IN, Operation.LIKE):
        return None
    if isinstance(transform, Truncate) and isinstance(source, (StringType, BinaryType)):
        return _strict_text(predicate, transform, ref)
    if op in _NEGATIVE:
        return None
    literal = predicate.literal
    if op in (Operation.LT_EQ, Operation.GT_EQ):
        literal = _step(literal, source, 1 if op == Operation.LT_EQ else -1)
    opened = Operation.LT if op in (Operation.LT, Operation.LT_EQ) else Operation.GT
    return _repaired_strict(
        BoundPredicate(opened, ref, (transform.apply(literal, source),)), transform, source
    )


def _strict_text(predicate: BoundPredicate, transform: Truncate, ref: BoundReference) -> Projected:
    op, literal = predicate.op, predicate.literal
    if op == Operation.NOT_LIKE:
        literal = literal_prefix(literal)[0]
        op = Operation.NOT_STARTS_WITH
    cut = transform.apply(literal, predicate.ref.type)
    if op == Operation.STARTS_WITH:
        return _prefix(op, ref, literal, transform.width) if len(literal) <= transform.width else None
    if op == Operation.NOT_STARTS_WITH:
        return _prefix(op, ref, cut, transform.width)
    return BoundPredicate(
        Operation.LT if op in (Operation.LT, Operation.LT_EQ) else Operation.GT, ref, (cut,)
    )


def _made(op: Operation, ref: BoundReference, values: tuple[Any, ...]) -> BoundPredicate:
    if len(values) > 1:
        return BoundPredicate(
            Operation.IN if op in (Operation.EQ, Operation.IN) else Operation.NOT_IN, ref, values
        )
    return BoundPredicate(
        Operation.EQ if op in (Operation.EQ, Operation.IN) else Operation.NOT_EQ, ref, values
    )


def _step(value: Any, type_: Any, by: int) -> Any:
    """The next or previous value of a type whose values are integers, or decimals of a scale."""
    if isinstance(type_, DecimalType):
        return scaled(unscaled(value, type_.scale) + by, type_.scale)
    return value + by


def _is_time(transform: Any, source: Any) -> bool:
    if isinstance(transform, Day):
        return not isinstance(source, DateType)
    return isinstance(transform, (Year, Month, Hour))


def _repaired(projected: BoundPredicate, transform: Any, source: Any) -> BoundPredicate:
    """Widened for files of Iceberg 0.10 and older.

    Their time transforms rounded values before 1970 up by one.
    """
    if not _is_time(transform, source) or projected.op == Operation.GT_EQ:
        return projected
    if projected.op == Operation.LT_EQ:
        value = projected.literal
        return replace(projected, literals=(value + 1,)) if value < 0 else projected
    return _made(projected.op, projected.ref, _with_successors(projected.literals))


def _repaired_strict(projected: BoundPredicate, transform: Any, source: Any) -> BoundPredicate:
    """Narrowed for the same files."""
    if not _is_time(transform, source) or projected.op == Operation.LT:
        return projected
    if projected.op == Operation.GT:
        value = projected.literal
        return replace(projected, literals=(value + 1,)) if value <= 0 else projected
    return _made(projected.op, projected.ref, _with_successors(projected.literals))


def _with_successors(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        dict.fromkeys(each for value in values for each in ((value, value + 1) if value < 0 else (value,)))
    )
