"""IcebergSource as flat options and back."""

from __future__ import annotations

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.source.iceberg.flat_table_options import options_of_source, source_of_options
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.expressions.expression_parser import parse_filter


@pytest.mark.parametrize(
    "source",
    [
        IcebergSource("/lake/t"),
        IcebergSource("db.t", "prod", "id > 1", ["id", "a,b"], {"start-tag": "x", "case-sensitive": False}),
        IcebergSource("db.t", {"type": "rest", "uri": "http://x", "Case": "Y"}, options={"branch": "b"}),
    ],
)
def test_there_and_back(source):
    flat = options_of_source(source)
    assert all(isinstance(value, str) for value in flat.values())
    assert source_of_options(flat) == source


def test_an_expression_as_text():
    source = IcebergSource("/t", filter=parse_filter("id in (1, 2) and (name = 'it''s' or x is null)"))
    found = source_of_options(options_of_source(source))
    assert parse_filter(found.filter) == source.filter
    assert found.filter_digest == source.filter_digest


def test_what_a_user_writes():
    source = source_of_options(
        {
            "path": "db.t",
            "catalog.type": "rest",
            "catalog.uri": "http://x",
            "columns": "id, name",
            "tag": "eod",
        }
    )
    assert source == IcebergSource(
        "db.t", {"type": "rest", "uri": "http://x"}, None, ["id", "name"], {"tag": "eod"}
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "the table is missing"),
        ({"path": "t", "lookback": "1"}, "here it is called 'split-lookback'"),
        ({"path": "t", "stream-from-timestamp": "1"}, "here it is called 'start-snapshot-timestamp'"),
        ({"path": "t", "catalog": "prod", "catalog.uri": "x"}, "give one of them"),
        ({"path": "t", "catalog": "{"}, "catalog is not JSON"),
        ({"path": "t", "columns": "["}, "columns is not JSON"),
        ({"path": "t", "brunch": "x"}, "did you mean 'branch'"),
    ],
)
def test_errors(options, error):
    with pytest.raises(InvalidOptionError, match=error):
        source_of_options(options)
