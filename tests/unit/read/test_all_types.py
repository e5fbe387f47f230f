"""Random rows of every type, in every format, under every transform: a scan returns exactly what matches."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.catalog.open import create
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.expressions.expressions import (
    BoundPredicate,
    BoundReference,
    Expression,
    evaluate,
    rewrite,
)
from streamlake.spec.expressions.value_range import value_matches
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import parse_transform
from streamlake.spec.types.data_types import (
    LongType,
    NestedField,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
)
from streamlake.spec.types.schema import Schema
from streamlake.tables import LoadedTable, create_table
from tests.unit.read.test_arrow_filter import in_arrow
from tests.unit.read.written_tables import append
from tests.unit.spec.expressions.test_expressions_pruning import TRANSFORMS, VALUES, predicates_of

TYPES = list(VALUES)
SCHEMA = Schema(
    (
        *(NestedField(at + 1, f"c{at}", type_) for at, type_ in enumerate(TYPES)),
        NestedField(len(TYPES) + 1, "row", LongType()),
    )
)


def on_column(expression: Expression, at: int) -> Expression:
    def leaf(predicate: BoundPredicate) -> Expression:
        return replace(predicate, ref=BoundReference(at + 1, f"c{at}", predicate.ref.type))

    return rewrite(expression, leaf)


@st.composite
def cases(draw):
    batches = draw(
        st.lists(
            st.lists(st.tuples(*(st.none() | VALUES[type_] for type_ in TYPES)), min_size=1, max_size=3),
            min_size=1,
            max_size=2,
        )
    )
    parts = []
    for at in draw(st.lists(st.sampled_from(range(len(TYPES))), max_size=2, unique=True)):
        names = [
            name for name in TRANSFORMS if name != "zorder[3]" and parse_transform(name).accepts(TYPES[at])
        ]
        transform = parse_transform(draw(st.sampled_from(names)))
        parts.append(PartitionField(at + 1, 1000 + len(parts), f"p{len(parts)}", transform))
    rows = [row for batch in batches for row in batch]
    conditions = []
    for at in draw(st.lists(st.sampled_from(range(len(TYPES))), min_size=1, max_size=2)):
        conditions.append(on_column(draw(predicates_of(TYPES[at], [row[at] for row in rows])), at))
    bound = (
        conditions[0]
        if len(conditions) == 1
        else draw(st.sampled_from([conditions[0] & conditions[1], conditions[0] | conditions[1]]))
    )
    # pyarrow reads ORC timestamps of 1677 to 2262 only, and no ORC file holds the last second before 1970.
    instants = [
        row[TYPES.index(kind)] or 0
        for row in rows
        for kind in TYPES
        if isinstance(kind, (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType))
    ]
    micros = [row[TYPES.index(kind)] or 0 for row in rows for kind in (TimestampType(), TimestamptzType())]
    fits = max(map(abs, micros)) < 2**63 // 1000 - 10**6 and not any(-(10**9) < each < 0 for each in instants)
    formats = ["parquet", "parquet", "avro", *(["orc"] if fits else [])]
    properties = {
        "write.format.default": draw(st.sampled_from(formats)),
        "write.metadata.metrics.default": draw(
            st.sampled_from(["none", "counts", "truncate(1)", "truncate(16)", "full"])
        ),
    }
    return batches, PartitionSpec(0, tuple(parts)), bound, properties


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_scans_return_what_matches(tmp_path_factory, case):
    batches, spec, bound, properties = case
    location = str(tmp_path_factory.mktemp("all") / "t")
    table = LoadedTable(create(location, SCHEMA, spec, format_version=3, properties=properties))
    expected, number = [], 0
    for batch in batches:
        columns = [in_arrow(type_, [row[at] for row in batch]) for at, type_ in enumerate(TYPES)]
        numbers = list(range(number, number + len(batch)))
        append(table, pa.table([*columns, pa.array(numbers)], schema=schema_to_arrow(table.schema)))
        for row in batch:
            if evaluate(bound, lambda leaf, row=row: value_matches(leaf, row[leaf.ref.field_id - 1])):
                expected.append(number)
            number += 1
    assert sorted(table.scan(bound, columns=["row"]).to_arrow()["row"].to_pylist()) == expected
    assert table.scan(bound).count() == len(expected)


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
def test_columns_that_no_file_has_yet(file_format, tmp_path):
    """Nothing is read of the file but how many rows it has."""
    table = create_table(tmp_path / "t", "id long", properties={"write.format.default": file_format})
    append(table, [{"id": 1}, {"id": 2}])
    base = table.metadata
    grown = replace(
        base.schema, schema_id=1, fields=(*base.schema.fields, NestedField(9, "late", LongType()))
    )
    new = replace(base, schemas=(*base.schemas, grown), current_schema_id=1, last_column_id=9)
    table.table.operations.commit(base, new)
    table.refresh()
    assert table.scan(columns=["late"]).to_arrow().to_pylist() == [{"late": None}, {"late": None}]
    assert table.scan("late is null").count() == 2
