"""Hive-style partition paths, escaped as Iceberg's Java library escapes them."""

from __future__ import annotations

import pytest

from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl

SCHEMA = parse_ddl("name string, ts timestamp, id long, `odd name/~` string")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain-Az_0.9*", "plain-Az_0.9*"),
        ("a b+c", "a+b%2Bc"),
        ("~/../x", "%7E%2F..%2Fx"),
        ("k=v&w%", "k%3Dv%26w%25"),
        ("caf\u00e9 \U0001f600", "caf%C3%A9+%F0%9F%98%80"),
        ("", ""),
        ("10:00:00", "10%3A00%3A00"),
        (None, "null"),
    ],
)
def test_values(value: str | None, expected: str) -> None:
    spec = parse_partition_by(["name"], SCHEMA)
    assert spec.partition_path((value,), SCHEMA) == f"name={expected}"


def test_fields_are_joined_in_order_and_names_escaped() -> None:
    spec = parse_partition_by(["day(ts)", "bucket(16, id)", "odd name/~"], SCHEMA)
    path = spec.partition_path((19_723, 3, "x"), SCHEMA)
    assert path == "ts_day=2024-01-01/id_bucket=3/odd+name%2F%7E=x"
