"""Rows of PostgreSQL as COPY writes them, without a server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streamlake.operate.verify.postgres_rows import PostgresRows
from streamlake.operate.verify.postgres_table import PostgresColumn
from streamlake.operate.verify.postgres_values import rendering
from streamlake.spec.types.data_types import IntegerType, StringType


@pytest.mark.parametrize(
    ("data", "values"),
    [(b"1\n\n", [1, None]), (b"\n", [None]), (b"\n\n2\n", [None, None, 2]), (b"1\n", [1])],
)
def test_a_row_of_one_null_is_a_row(data: bytes, values: list[int | None]) -> None:
    """COPY writes an empty line for it."""
    column = rendering(PostgresColumn("a", "int4"), IntegerType())
    assert column is not None
    rows = PostgresRows(cast(Any, None), cast(Any, None))
    assert rows._table(data, {"a": column}).column("a").to_pylist() == values


def test_an_empty_text_is_no_null() -> None:
    column = rendering(PostgresColumn("a", "text"), StringType())
    assert column is not None
    rows = PostgresRows(cast(Any, None), cast(Any, None))
    assert rows._table(b'""\n\nx\n', {"a": column}).column("a").to_pylist() == ["", None, "x"]
