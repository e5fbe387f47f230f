"""The names that `source-tables` gives."""

from __future__ import annotations

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.table_patterns import parse_table_patterns


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("shop.users", ("shop.users",)),
        (" shop.users , shop.public.orders_*,shop.users,", ("shop.users", "shop.public.orders_*")),
        ("users", ("users",)),
        ("*", ("*",)),
        ("Shop.Order Details, shop.[a-c]*, shop.[]x]", ("Shop.Order Details", "shop.[a-c]*", "shop.[]x]")),
        ("srv.1/shop.users, shop.a/b, /shop.a/b", ("srv.1/shop.users", "shop.a/b", "/shop.a/b")),
        ("shop.tëst-1$", ("shop.tëst-1$",)),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert parse_table_patterns(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no table"),
        (" , ", "names no table"),
        ('shop."Users"', "quotes"),
        ("`shop`.`users`", "quotes"),
        ("'shop.users'", "quotes"),
        ("[dbo].[users]", "quotes"),
        ("shop.[users]", "quotes"),
        ("server/[dbo].users", "quotes"),
        ("shop.[users", r"a \[ has no \]"),
        ("shop.users, .users", "a part is empty"),
        ("shop..users", "a part is empty"),
        ("shop.", "a part is empty"),
        ("server/", "a part is empty"),
        ("shop . users", "a space beside a dot"),
    ],
)
def test_what_no_table_is_called(text: str, why: str) -> None:
    """Else the option would be left out, or its name would meet no record, in silence."""
    with pytest.raises(InvalidOptionError, match=why):
        KafkaSource("b:1", "t", format="maxwell-json", options={"source-tables": text})
