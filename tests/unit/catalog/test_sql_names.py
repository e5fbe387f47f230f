"""A SQL catalog sees the tables of its own name only: what is made under a name is found under it, by PyIceberg too."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake import create_table, load_table
from streamlake.catalog.sql_names import advice, names_with_table
from streamlake.errors import TableNotFoundError

pytest.importorskip("sqlalchemy")
pyiceberg = pytest.importorskip("pyiceberg.catalog")


def test_a_table_is_found_under_the_name_that_was_given(tmp_path: Path) -> None:
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    create_table("db.orders", "id long", catalog={**given, "name": "lake"})
    assert pyiceberg.load_catalog("lake", **given).list_tables("db") == [("db", "orders")]
    assert load_table("db.orders", {**given, "name": "lake"}).name == "db.orders"
    with pytest.raises(
        TableNotFoundError, match=r"has it under the catalog name 'lake', .* such as name=lake"
    ):
        load_table("db.orders", given)
    with pytest.raises(TableNotFoundError) as caught:
        load_table("db.nothing", given)
    assert "catalog name" not in str(caught.value)


def test_other_catalogs_are_not_asked() -> None:
    assert names_with_table(object(), "db.orders") == []

    class Broken:
        engine, name = object(), "lake"

    assert advice(Broken(), "db.orders") == ""
