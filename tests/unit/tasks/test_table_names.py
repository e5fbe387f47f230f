"""Topics and the tables that they go into."""

from __future__ import annotations

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.operate.verify.verified_source import pipeline_source
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.tasks.table_names import TableNames, is_template, row_placeholders


def test_placeholders_are_the_topic_and_the_groups_of_its_pattern() -> None:
    assert is_template("/lake/{topic}")
    assert not is_template("/lake/orders")
    assert TableNames("/lake/{topic}", None).of("a.b") == "/lake/a.b"
    names = TableNames("{schema}.cdc_{table}", r"shop\.(?P<schema>\w+)\.(?P<table>\w+)")
    assert names.of("shop.public.orders") == "public.cdc_orders"


@pytest.mark.parametrize(
    ("template", "pattern", "message"),
    [
        ("lake.{tabel}", r"(?P<table>.*)", r"placeholder '\{tabel\}'.*did you mean 'table'"),
        ("lake.{}", None, r"placeholder '\{\}'.*there is topic"),
        ("lake.{row.}", None, r"placeholder '\{row\.\}'"),
        ("lake.{country}", None, r"A field of the row is '\{row\.country\}'"),
        ("lake.{route}", None, r"'\{route\}', and no function is given"),
    ],
)
def test_an_unknown_placeholder_is_refused(template: str, pattern: str | None, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        TableNames(template, pattern)


def test_what_rows_tell_is_left_in() -> None:
    names = TableNames("{topic}/{row.a.b}_{route}_{row.a.b}", None, has_route=True)
    assert names.by_row
    assert names.of("t") == "t/{row.a.b}_{route}_{row.a.b}"
    assert row_placeholders(names.of("t")) == ("row.a.b", "route")
    assert not TableNames("lake.{topic}", None).by_row


def test_topics_are_not_compared_with_one_of_the_tables_that_their_rows_name() -> None:
    text = (
        "{source: {kafka: {bootstrap-servers: 'b:1', topics: t}}, sink: {table: 'e_{row.c}'}, checkpoint: /c}"
    )
    with pytest.raises(InvalidOptionError, match=r"p.yaml: rows name the tables of 'e_\{row.c\}'"):
        pipeline_source(parse_pipeline(text, "p.yaml", {}), pytest.fail, "p.yaml")


def test_a_topic_whose_group_is_empty_gives_no_table() -> None:
    names = TableNames("lake.{table}", r"shop(\.(?P<table>\w+))?")
    assert names.of("shop.a") == "lake.a"
    with pytest.raises(InvalidOptionError, match="the topic 'shop' gives no table"):
        names.of("shop")


@pytest.mark.parametrize(
    ("template", "pattern", "topic"),
    [
        ("/lake/shop/{table}", r"shop\.public\.(?P<table>.+)", "shop.public..."),
        ("/lake/shop/{table}", r"shop\.public\.(?P<table>.+)", "shop.public.."),
        ("/lake/{table}/data", r"shop\.(?P<table>.+)", "shop..."),
        ("/lake/{a}{b}", r"(?P<a>.).*?(?P<b>.)", ".x."),
    ],
)
def test_a_topic_does_not_choose_another_directory(template: str, pattern: str, topic: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"gives the table '.*', whose directory is another one's"):
        TableNames(template, pattern).of(topic)


def test_a_path_that_the_user_wrote_is_the_users_own() -> None:
    assert TableNames("../lake/./{topic}", None).of("a..b") == "../lake/./a..b"


def test_a_topic_does_not_name_the_rejects_of_another_table() -> None:
    with pytest.raises(InvalidOptionError, match="'orders__rejects' gives the table '/lake/orders__rejects'"):
        TableNames("/lake/{topic}", None).of("orders__rejects")
    assert TableNames("/lake/{topic}_raw", None).of("orders__rejects") == "/lake/orders__rejects_raw"
    assert TableNames("/lake/{topic}__rejects", None).of("orders") == "/lake/orders__rejects"
