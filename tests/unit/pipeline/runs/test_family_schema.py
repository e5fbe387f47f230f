"""The columns that one stream is decoded with for several tables, and the rows that each of them takes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamlake.decode.values.new_fields import Watch
from streamlake.errors import NewSchemaError
from streamlake.pipeline.runs.routed.family_schema import united
from streamlake.records import MISSING_FIELDS, ROW_ORDER
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_text import columns_text
from streamlake.tasks.table_fit import TableFit


def test_columns_of_all_tables_each_as_wide_as_the_widest() -> None:
    one = parse_ddl("id long not null, n int not null, s struct<a: int, b: array<float>>, d decimal(5,2)")
    two = parse_ddl(
        "n long not null, id long not null, s struct<b: array<double>, c: string>, d decimal(9,2), x string not null"
    )
    assert columns_text(united([one, two])) == columns_text(
        parse_ddl(
            "id long not null, n long not null, s struct<a: int, b: array<double>, c: string>, d decimal(9,2), x string"
        )
    )
    assert united([one]) is one


def fit(table: str, watch: Watch | None = None) -> TableFit:
    stream = parse_ddl("id long, n long, s struct<a: int, b: int>, x string")
    return TableFit("t", parse_ddl(table), stream, watch=watch)


def batch(**columns: object) -> pa.RecordBatch:
    given = {"id": [1, 2], "n": [3, 4], "s": [None, None], "x": [None, None], **columns}
    types = {"s": pa.struct([("a", pa.int32()), ("b", pa.int32())]), "x": pa.string()}
    return pa.record_batch(
        [pa.array(values, types.get(name)) for name, values in given.items()], names=list(given)
    )


def test_a_table_takes_the_columns_that_it_has() -> None:
    rows = batch(**{ROW_ORDER: [0, 1], MISSING_FIELDS: [None, None]})
    kept = fit("id long, x string").of(rows)
    assert kept.schema.names == ["id", "x", ROW_ORDER, MISSING_FIELDS]
    assert fit("id long, n long, s struct<a: int, b: int>, x string").of(rows) is rows
    assert fit("id long").of(batch(x=["lost", None])).schema.names == ["id"], "it does not follow its stream"


def test_a_table_that_follows_asks_for_what_it_lacks_once_there_are_values() -> None:
    add, full = Watch(), Watch(widen=True)
    assert fit("id long, n long", add).of(batch()).schema.names == ["id", "n"]
    with pytest.raises(NewSchemaError, match="x string") as caught:
        fit("id long, n long", add).of(batch(x=["new", None]))
    assert '"name": "x"' in caught.value.wanted.replace('":"', '": "')
    with pytest.raises(NewSchemaError, match="s struct"):
        fit("id long, n long, s struct<a: int>", add).of(batch(s=[{"a": 1, "b": 2}, None]))
    assert fit("id long, n int", full).of(batch()).num_columns == 2, "the values fit as they are"
    with pytest.raises(NewSchemaError, match="n long"):
        fit("id long, n int", full).of(batch(n=[1 << 40, 1]))
    assert fit("id long, n int", add).of(batch(n=[1 << 40, 1])).num_columns == 2, "the row check tells of it"
