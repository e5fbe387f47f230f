"""Pruning never loses a row: projection, manifest summaries and file metrics against brute force."""

from __future__ import annotations

import itertools
import math
import struct
import uuid
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.evaluators import (
    file_may_match,
    file_must_match,
    file_residual,
    manifest_may_match,
)
from streamlake.spec.expressions.expressions import (
    FALSE,
    TRUE,
    BoundPredicate,
    BoundReference,
    Operation,
    evaluate,
)
from streamlake.spec.expressions.projection import (
    inclusive_projection,
    partition_matches,
    residual,
    strict_projection,
)
from streamlake.spec.expressions.value_range import value_matches
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import FieldSummary, ManifestContent, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec, parse_partition_by
from streamlake.spec.partitioning.transforms import Month, UnknownTransform, parse_transform
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.values import to_bytes, truncate_lower, truncate_upper

MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

narrow_ints = st.one_of(st.integers(-5, 5), st.integers(-(2**31), 2**31 - 1))
wide_ints = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(st.text("ab\U0001f680\uffff", max_size=4), st.text(max_size=4))
instants = st.one_of(
    st.integers(-9, 9).map(lambda n: n * 1_000_000_000), st.integers(-(6 * 10**16), 2 * 10**17)
)
doubles = st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5]), st.floats())
VALUES = {
    BooleanType(): st.booleans(),
    IntegerType(): narrow_ints,
    LongType(): wide_ints,
    FloatType(): st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf]), st.floats(width=32)),
    DoubleType(): doubles,
    DecimalType(9, 2): st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    DecimalType(38, 3): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-3")),
    DateType(): st.one_of(st.integers(-40, 40), st.integers(-700_000, 2_000_000)),
    TimeType(): st.integers(0, 86_399_999_999),
    TimestampType(): instants,
    TimestamptzType(): instants,
    TimestampNsType(): instants,
    StringType(): texts,
    UUIDType(): st.one_of(st.sampled_from([uuid.UUID(int=n << 125) for n in range(8)]), st.uuids()),
    FixedType(2): st.binary(min_size=2, max_size=2),
    BinaryType(): st.binary(max_size=4),
}
COMPARISONS = [Operation.LT, Operation.LT_EQ, Operation.GT, Operation.GT_EQ, Operation.EQ, Operation.NOT_EQ]


def is_nan(value):
    return isinstance(value, float) and value != value


@st.composite
def predicates_of(draw, type_, rows):
    """A predicate whose literals are near the rows' values."""
    unary = [Operation.IS_NULL, Operation.NOT_NULL]
    unary += [Operation.IS_NAN, Operation.NOT_NAN] if isinstance(type_, (FloatType, DoubleType)) else []
    textual = [Operation.STARTS_WITH, Operation.NOT_STARTS_WITH, Operation.LIKE, Operation.NOT_LIKE]
    textual = textual if isinstance(type_, StringType) else []
    op = draw(st.sampled_from([*unary, *COMPARISONS, *COMPARISONS, Operation.IN, Operation.NOT_IN, *textual]))
    ref = BoundReference(1, "c", type_)
    if op.is_unary:
        return BoundPredicate(op, ref)
    usable = [row for row in rows if row is not None and not is_nan(row)]
    near = st.one_of(st.sampled_from(usable), VALUES[type_]) if usable else VALUES[type_]
    literals = near.filter(lambda value: not is_nan(value))
    if op.is_set:
        return BoundPredicate(op, ref, tuple(draw(st.lists(literals, min_size=2, max_size=4, unique=True))))
    literal = draw(literals)
    if op in textual:
        literal = literal[: draw(st.integers(1, 4))] or "a"
    if op in (Operation.LIKE, Operation.NOT_LIKE):
        literal = literal.replace("\\", "") + draw(st.sampled_from(["%b", "_", "%a%"]))
    return BoundPredicate(op, ref, (literal,))


def statistics(draw, type_, rows):
    """A data file's metrics, of which any part may be missing or cut."""
    known = [row for row in rows if row is not None and not is_nan(row)]
    lower, upper = (min(known), max(known)) if known else (None, None)
    if isinstance(type_, UUIDType) and known and draw(st.booleans()):
        signed = sorted(known, key=lambda value: struct.unpack(">qq", value.bytes))
        lower, upper = signed[0], signed[-1]
    width = draw(st.sampled_from([1, 2, 100]))
    lower = None if lower is None else truncate_lower(type_, lower, width)
    upper = None if upper is None else truncate_upper(type_, upper, width)
    if isinstance(lower, float) and draw(st.booleans()):
        lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)

    def maybe(value):
        return {1: value} if value is not None and draw(st.booleans() | st.just(True)) else None

    return {
        "value_counts": maybe(len(rows)),
        "null_value_counts": maybe(sum(row is None for row in rows)),
        "nan_value_counts": maybe(sum(map(is_nan, rows)))
        if isinstance(type_, (FloatType, DoubleType))
        else None,
        "lower_bounds": None if lower is None else maybe(to_bytes(type_, lower)),
        "upper_bounds": None if upper is None else maybe(to_bytes(type_, upper)),
    }


@MANY
@given(st.data())
def test_file_metrics_never_lie(data):
    type_ = data.draw(st.sampled_from(list(VALUES)))
    rows = data.draw(st.lists(st.none() | VALUES[type_], min_size=1, max_size=5))
    first = data.draw(predicates_of(type_, rows))
    second = data.draw(predicates_of(type_, rows))
    bound = data.draw(st.sampled_from([first, first & second, first | second]))
    file = DataFile(
        FileContent.DATA, "f", "parquet", 0, (), len(rows), 1, **statistics(data.draw, type_, rows)
    )
    hits = [evaluate(bound, lambda leaf, row=row: value_matches(leaf, row)) for row in rows]
    left = file_residual(bound, file)
    assert [evaluate(left, lambda leaf, row=row: value_matches(leaf, row)) for row in rows] == hits
    if not file_may_match(bound, file):
        assert not any(hits)
    if file_must_match(bound, file):
        assert all(hits)


TRANSFORMS = [
    "identity",
    "bucket[3]",
    "truncate[2]",
    "truncate[3]",
    "year",
    "month",
    "day",
    "hour",
    "void",
    "zorder[3]",
]


@MANY
@given(st.data())
def test_projection_and_summaries_never_lie(data):
    transform = parse_transform(data.draw(st.sampled_from(TRANSFORMS)))
    type_ = data.draw(st.sampled_from([type_ for type_ in VALUES if transform.accepts(type_)]))
    unknown = isinstance(transform, UnknownTransform)
    spec = PartitionSpec(
        1, (PartitionField(9, 1000, "other", Month()), PartitionField(1, 1001, "p", transform))
    )
    rows = data.draw(st.lists(st.none() | VALUES[type_], min_size=1, max_size=5))
    bound = data.draw(predicates_of(type_, rows))
    inclusive, strict = inclusive_projection(bound, spec), strict_projection(bound, spec)
    partitions = []
    for row in rows:
        value = "?" if unknown else transform.apply(row, type_)
        # Iceberg 0.10 and older rounded times before 1970 up.
        if str(transform) in ("year", "month", "hour") and value is not None and value < 0:
            value += data.draw(st.integers(0, 1))
        partition = (None, value)
        partitions.append(value)
        hit = value_matches(bound, row)
        if hit:
            assert partition_matches(inclusive, partition)
        if partition_matches(strict, partition):
            assert hit
        left = residual(bound, spec, partition)
        assert evaluate(left, lambda leaf, row=row: value_matches(leaf, row)) == hit
    if any(value_matches(bound, row) for row in rows) and not unknown:
        assert manifest_may_match(inclusive, manifest_of(transform.result_type(type_), partitions, data.draw))


def manifest_of(type_, partitions, draw):
    known = [value for value in partitions if value is not None and not is_nan(value)]
    summary = FieldSummary(
        contains_null=None in partitions,
        contains_nan=draw(st.sampled_from([any(map(is_nan, partitions)), None])),
        lower_bound=to_bytes(type_, min(known)) if known else None,
        upper_bound=to_bytes(type_, max(known)) if known else None,
    )
    return manifest((FieldSummary(True), summary))


def manifest(partitions, **counts):
    return ManifestFile(
        manifest_path="m",
        manifest_length=1,
        partition_spec_id=1,
        content=ManifestContent.DATA,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=1,
        added_files_count=counts.get("added", 1),
        existing_files_count=counts.get("existing", 0),
        deleted_files_count=0,
        added_rows_count=1,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=partitions,
    )


SCHEMA = parse_ddl(
    "ts timestamp_ntz, id long, category string, amount decimal(9,2), name string, d double, day date"
)


def projected(text, *partition_by, strict=False):
    spec = parse_partition_by(partition_by, SCHEMA)
    return str((strict_projection if strict else inclusive_projection)(bind(text, SCHEMA), spec))


def days(text):
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(days=1)


def test_projections_are_tight():
    day = days("2024-01-31")
    assert projected("ts > '2024-01-31T10:00:00'", "day(ts)") == f"ts_day >= {day}"
    assert projected("ts >= '2024-01-31'", "day(ts)") == f"ts_day >= {day}"
    assert projected("ts < '2024-01-31'", "day(ts)") == f"ts_day <= {day - 1}"
    assert projected("ts <= '2024-01-31'", "day(ts)") == f"ts_day <= {day}"
    assert projected("ts < '2024-01-31'", "day(ts)", strict=True) == f"ts_day < {day}"
    assert projected("ts >= '2024-01-31'", "day(ts)", strict=True) == f"ts_day > {day - 1}"
    assert projected("ts = '2024-01-31T10:00:00'", "hour(ts)") == f"ts_hour = {day * 24 + 10}"
    assert projected("day > '2024-01-30'", "month(day)") == f"day_month >= {54 * 12}"
    assert projected("id = 34", "bucket(16, id)") == f"id_bucket = {2017239379 % 16}"
    assert projected("id in (1, 2, 3)", "bucket(2, id)").startswith("id_bucket")
    assert projected("id > 5", "bucket(16, id)") == "true"
    assert projected("id != 5", "bucket(16, id)") == "true"
    assert projected("id != 5", "bucket(16, id)", strict=True).startswith("id_bucket != ")
    # The lowest integers are cut below the lowest and come out as a high number.
    assert projected("id < 100", "truncate(10, id)") == f"id_trunc <= 90 or id_trunc = {2**63 - 2}"
    assert projected("id < 100", "truncate(8, id)") == "id_trunc <= 96"
    assert projected("id > 99", "truncate(10, id)") == "id_trunc >= 100"
    assert projected("amount < 10.00", "truncate(50, amount)") == "amount_trunc <= 9.50"
    assert projected("name < 'abcdef'", "truncate(3, name)") == "name_trunc <= 'abc'"
    assert projected("name starts_with 'ab'", "truncate(3, name)") == "name_trunc starts_with 'ab'"
    assert projected("name starts_with 'abcd'", "truncate(3, name)") == "name_trunc = 'abc'"
    assert projected("name like 'abcd%x'", "truncate(3, name)") == "name_trunc = 'abc'"
    assert projected("name not starts_with 'abc'", "truncate(3, name)") == "name_trunc != 'abc'"
    assert projected("name not starts_with 'abcd'", "truncate(3, name)") == "true"
    assert projected("category != 'a'", "category") == "category != 'a'"
    assert projected("category is null and id = 3", "category") == "category is null"
    assert projected("category = 'a' or id = 3", "category") == "true"
    assert projected("id = 1 and name = 'abc'", "void(id)", "name") == "name = 'abc'"
    assert projected("ts > '9999-12-31T23:59:59.999999'", "year(ts)") == "true"


def test_several_fields_on_one_column():
    spec = parse_partition_by(["day(ts)", "hour(ts)"], SCHEMA)
    bound = bind("ts >= '2024-01-31T10:00:00'", SCHEMA)
    day = days("2024-01-31")
    assert str(inclusive_projection(bound, spec)) == f"ts_day >= {day} and ts_hour >= {day * 24 + 10}"
    assert str(strict_projection(bound, spec)) == f"ts_day > {day} or ts_hour > {day * 24 + 9}"


def test_residuals_drop_what_the_partition_decides():
    spec = parse_partition_by(["day(ts)", "category"], SCHEMA)
    bound = bind("ts >= '2024-01-31' and category = 'a' and id > 3", SCHEMA)
    after, same = days("2024-02-01"), days("2024-01-31")
    assert str(residual(bound, spec, (after, "a"))) == "id > 3"
    assert str(residual(bound, spec, (same, "a"))) == "id > 3"
    assert residual(bound, spec, (after, "b")) == FALSE
    assert residual(bound, spec, (after, None)) == FALSE
    later = bind("ts >= '2024-01-31T10:00:00'", SCHEMA)
    assert residual(later, spec, (same, "a")) == later
    assert residual(later, spec, (after, "a")) == TRUE


def data_file(record_count=10, **metrics):
    return DataFile(FileContent.DATA, "f", "parquet", 0, (), record_count, 1, **metrics)


def long_bytes(number):
    return to_bytes(LongType(), number)


@pytest.mark.parametrize(
    ("text", "may", "must"),
    [
        ("id = 5", True, False),
        ("id = 11", False, False),
        ("id >= 1", True, True),
        ("id > 10", False, False),
        ("id < 1", False, False),
        ("id != 11", True, True),
        ("id in (0, 11)", False, False),
        ("id in (0, 5)", True, False),
        ("id not in (0, 11)", True, True),
        ("id is null", False, False),
        ("id is not null", True, True),
        ("name = 'a'", True, False),
        ("id between 1 and 10 or name = 'a'", True, True),
        ("id = 11 or name = 'a'", True, False),
        ("id = 11 and name = 'a'", False, False),
    ],
)
def test_metrics_prune_and_prove(text, may, must):
    file = data_file(
        value_counts={2: 10},
        null_value_counts={2: 0},
        lower_bounds={2: long_bytes(1)},
        upper_bounds={2: long_bytes(10)},
    )
    assert file_may_match(bind(text, SCHEMA), file) is may
    assert file_must_match(bind(text, SCHEMA), file) is must


def test_bounds_from_before_a_promotion():
    early = data_file(lower_bounds={2: struct.pack("<i", 1)}, upper_bounds={2: struct.pack("<i", 10)})
    assert not file_may_match(bind("id > 10", SCHEMA), early)
    assert file_may_match(bind("id = 10", SCHEMA), early)
    day = days("2024-01-31")
    dates = data_file(lower_bounds={1: struct.pack("<i", day)}, upper_bounds={1: struct.pack("<i", day)})
    assert file_may_match(bind("ts = '2024-01-31'", SCHEMA), dates)
    assert not file_may_match(bind("ts > '2024-01-31'", SCHEMA), dates)


def test_damaged_and_nan_bounds_say_nothing():
    odd = data_file(lower_bounds={2: b"xyz", 3: b"\xff\xff"}, upper_bounds={2: b"", 3: b"\xff"})
    assert file_may_match(bind("id = 1 and category = 'a'", SCHEMA), odd)
    nan = struct.pack("<d", math.nan)
    assert file_may_match(bind("d = 1", SCHEMA), data_file(lower_bounds={6: nan}, upper_bounds={6: nan}))


def test_nan_rows_are_not_lost_to_bounds():
    bounds = {
        "value_counts": {6: 10},
        "null_value_counts": {6: 0},
        "lower_bounds": {6: struct.pack("<d", 1.0)},
        "upper_bounds": {6: struct.pack("<d", 1.0)},
    }
    with_nan, without = (
        data_file(nan_value_counts={6: 2}, **bounds),
        data_file(nan_value_counts={6: 0}, **bounds),
    )
    for text in ("d > 5", "d != 1", "d not in (1, 2)", "d is nan"):
        assert file_may_match(bind(text, SCHEMA), with_nan), text
        assert not file_may_match(bind(text, SCHEMA), without), text
        assert file_may_match(bind(text, SCHEMA), data_file(**bounds)), text
    assert not file_must_match(bind("d = 1", SCHEMA), with_nan)
    assert file_must_match(bind("d = 1", SCHEMA), without)


def test_counts_that_leave_rows_out_prove_nothing():
    partial = data_file(value_counts={2: 7}, null_value_counts={2: 0})
    assert file_may_match(bind("id is null", SCHEMA), partial)
    assert not file_must_match(bind("id is not null", SCHEMA), partial)
    assert file_may_match(bind("id = 3", SCHEMA), data_file(value_counts={2: 0}, null_value_counts={2: 0}))


def test_columns_full_of_nulls():
    nulls = data_file(value_counts={2: 10}, null_value_counts={2: 10})
    assert not file_may_match(bind("id != 3", SCHEMA), nulls)
    assert file_must_match(bind("id is null", SCHEMA), nulls)
    assert not file_may_match(bind("id is not null", SCHEMA), nulls)


def test_empty_files_and_manifests():
    assert not file_may_match(TRUE, data_file(record_count=0))
    assert not manifest_may_match(TRUE, manifest(None, added=0, existing=0))
    assert manifest_may_match(TRUE, manifest(None, added=None, existing=None))


def test_manifests_without_summaries_are_kept():
    spec = parse_partition_by(["category"], SCHEMA)
    wanted = inclusive_projection(bind("category = 'a'", SCHEMA), spec)
    assert manifest_may_match(wanted, manifest(None))
    assert manifest_may_match(wanted, manifest(()))
    assert not manifest_may_match(wanted, manifest((FieldSummary(False, None, b"b", b"c"),)))
    assert manifest_may_match(wanted, manifest((FieldSummary(False, None, b"a", b"c"),)))


def test_uuid_bounds_of_either_order_keep_their_values():
    small, large = uuid.UUID(int=0), uuid.UUID(int=0xE3 << 120)
    ref = BoundReference(1, "c", UUIDType())
    for lower, upper in ((small, large), (large, small)):
        file = DataFile(
            FileContent.DATA,
            "f",
            "parquet",
            0,
            (),
            2,
            1,
            lower_bounds={1: lower.bytes},
            upper_bounds={1: upper.bytes},
        )
        for value in (small, large):
            assert file_may_match(BoundPredicate(Operation.EQ, ref, (value,)), file)
        assert file_may_match(BoundPredicate(Operation.IN, ref, (small, large)), file)
    narrow = DataFile(
        FileContent.DATA,
        "f",
        "parquet",
        0,
        (),
        2,
        1,
        lower_bounds={1: small.bytes},
        upper_bounds={1: small.bytes},
    )
    assert not file_may_match(BoundPredicate(Operation.EQ, ref, (large,)), narrow)


DAY_MICROS = 86_400_000_000


def around(*moments):
    return [moment + step for moment in moments for step in (-1, 0, 1)]


SMALL_DOMAINS = [
    ("truncate[3]", LongType(), list(range(-7, 8))),
    ("truncate[2]", IntegerType(), list(range(-5, 6))),
    ("truncate[5]", DecimalType(9, 2), [Decimal(n).scaleb(-2) for n in range(-7, 8)]),
    ("truncate[2]", StringType(), ["", "a", "ab", "aba", "abb", "abc", "ac", "b"]),
    ("truncate[1]", BinaryType(), [b"", b"a", b"ab", b"\xff", b"\xff\x00"]),
    ("bucket[2]", LongType(), list(range(-3, 4))),
    ("year", DateType(), around(-365, 0, 365)),
    ("month", DateType(), around(-31, 0, 31)),
    ("day", DateType(), around(0)),
    ("year", TimestampType(), around(-365 * DAY_MICROS, 0, 365 * DAY_MICROS)),
    ("month", TimestampType(), around(-31 * DAY_MICROS, 0, 31 * DAY_MICROS)),
    ("day", TimestampType(), around(-DAY_MICROS, 0, DAY_MICROS)),
    ("hour", TimestamptzType(), around(-3_600_000_000, 0, 3_600_000_000)),
    ("day", TimestampNsType(), around(-DAY_MICROS * 1000, 0, DAY_MICROS * 1000)),
    ("identity", DoubleType(), [-1.0, -0.0, 0.0, 1.0, math.nan]),
]


@pytest.mark.parametrize(("name", "type_", "values"), SMALL_DOMAINS)
def test_projections_of_small_domains(name, type_, values):
    """Every operation, literal and value near the places where the transform's result changes."""
    transform = parse_transform(name)
    spec = PartitionSpec(0, (PartitionField(1, 1000, "p", transform),))
    ref = BoundReference(1, "c", type_)
    texts = [Operation.STARTS_WITH, Operation.NOT_STARTS_WITH] if isinstance(type_, StringType) else []
    literals = [value for value in values if not is_nan(value)]
    predicates = [
        BoundPredicate(op, ref, (literal,)) for op in [*COMPARISONS, *texts] for literal in literals
    ]
    pairs = list(itertools.pairwise(literals))
    predicates += [BoundPredicate(op, ref, pair) for op in (Operation.IN, Operation.NOT_IN) for pair in pairs]
    for predicate in predicates:
        inclusive, strict = inclusive_projection(predicate, spec), strict_projection(predicate, spec)
        for value in [None, *values]:
            partition = (transform.apply(value, type_),)
            hit = value_matches(predicate, value)
            assert partition_matches(inclusive, partition) or not hit, (str(predicate), value)
            assert hit or not partition_matches(strict, partition), (str(predicate), value)


@pytest.mark.parametrize(("type_", "bits"), [(IntegerType(), 32), (LongType(), 64)])
@pytest.mark.parametrize("width", [2, 3, 100])
def test_projections_where_truncation_overflows(type_, bits, width):
    """As `test_projections_of_small_domains`, with partition values as the vectorised transform and Java make them."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    values = [low, low + 1, low + width, -1, 0, high - width, high - 1, high]
    transform, ref = parse_transform(f"truncate[{width}]"), BoundReference(1, "c", type_)
    spec = PartitionSpec(0, (PartitionField(1, 1000, "p", transform),))
    predicates = [BoundPredicate(op, ref, (literal,)) for op in COMPARISONS for literal in values]
    pairs = list(itertools.pairwise(values))
    predicates += [BoundPredicate(op, ref, pair) for op in (Operation.IN, Operation.NOT_IN) for pair in pairs]
    for predicate in predicates:
        inclusive, strict = inclusive_projection(predicate, spec), strict_projection(predicate, spec)
        for value in values:
            cut = transform.apply(value, type_)
            partition = (cut if cut >= low else cut + 2**bits,)
            hit = value_matches(predicate, value)
            assert partition_matches(inclusive, partition) or not hit, (str(predicate), value)
            assert hit or not partition_matches(strict, partition), (str(predicate), value)


def test_uuid_bounds_in_the_signed_order_of_java():
    low, inside, high = (uuid.UUID(bytes=struct.pack(">qq", *halves)) for halves in ((1, -1), (1, 0), (2, 5)))
    ref = BoundReference(1, "u", UUIDType())
    file = data_file(lower_bounds={1: low.bytes}, upper_bounds={1: high.bytes})
    assert file_may_match(BoundPredicate(Operation.EQ, ref, (inside,)), file)
    assert file_may_match(BoundPredicate(Operation.IN, ref, (inside, uuid.UUID(int=0))), file)
    assert not file_may_match(BoundPredicate(Operation.EQ, ref, (uuid.UUID(int=0),)), file)
