"""What a sink says of a table that exists, or of properties that do not, is answered before anything is written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streamlake import IcebergSink, IcebergTables
from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.pipeline.sinks.arguments.frame_check import require_rows
from streamlake.pipeline.sinks.arguments.property_names import PropertyNames
from streamlake.pipeline.sinks.arguments.unused_properties import tell_unused
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.tables import make_table
from tests.test_reference import GENERATE


def test_another_layout_than_the_tables_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path / "t", "id long, at timestamp", partition_by=["month(at)"])
    with caplog.at_level(logging.WARNING):
        tell_unused(
            table, IcebergSink(str(tmp_path / "t"), create=True, partition_by="month(at)", format_version=2)
        )
        assert caplog.messages == []
        tell_unused(
            table, IcebergSink(str(tmp_path / "t"), create=True, partition_by="day(at)", sort_by="id desc")
        )
    assert [text.partition(": ")[0] for text in caplog.messages] == [
        f"partition_by is day(at), but {tmp_path}/t exists and is partitioned by month(at)",
        f"sort_by is id desc, but {tmp_path}/t exists and is sorted by nothing",
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("write.target-file-size", "write.target-file-size-bytes"),
        ("Write.Target-File-Size-Bytes", None),
        ("write.parquet.compresion-codec", "write.parquet.compression-codec"),
        ("write.delete.parquet.compression-codecs", "write.delete.parquet.compression-codec"),
        ("commit.retry.num-retry", "commit.retry.num-retries"),
        ("history.expire.max-snapshot-age", "history.expire.max-snapshot-age-ms"),
        ("streamlake.schema_evolution", "streamlake.schema-evolution"),
    ],
)
def test_misspelt_properties(name: str, near: str | None) -> None:
    if near is None:
        assert not PropertyNames.of([name]).misspelt, "it is in nobody's namespace"
        return
    with pytest.raises(InvalidOptionError) as raised:
        IcebergSink("/t", create=True, properties={name: "1"})
    assert str(raised.value) == f"there is no table property '{name}'; did you mean '{near}'?"
    with pytest.raises(InvalidOptionError, match="did you mean"):
        IcebergTables("/t/{topic}", properties={name: "1"})


def test_properties_that_are_right() -> None:
    named = [
        *(each.name.replace("<column>", "a.b") for each in GENERATE.declared_properties()),
        "write.delete.orc.compression-codec",
        "write.metadata.metrics.column.a.b",
        "streamlake.pipeline.orders",
        "format-version",
        "owner",
        "comment",
        "my.write.thing",
    ]
    names = PropertyNames.of(named)
    assert (dict(names.misspelt), dict(names.unknown), names.of_others) == ({}, {}, ())
    others = [
        "write.wap.enabled",
        "write.parquet.bloom-filter-enabled.column.id",
        "read.split.target-size",
    ]
    assert PropertyNames.of(others).of_others == tuple(others)
    assert PropertyNames.of(["write.parquet.turbo-mode"]).unknown


def test_a_dot_in_a_column_of_a_dataframe() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        require_rows(["id", "a.b"], "fail")
    assert str(raised.value) == (
        "the column 'a.b' has a dot in its name, which Spark takes for a field of a struct: rename it before the sink by "
        ".withColumnRenamed('a.b', 'a_b'), or by `a.b` as a_b in select"
    )


def test_a_name_of_a_catalog_that_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        TableNotFoundError, match=r"'db\.orders' is a name in a catalog, and no catalog is given"
    ):
        open_table("db.orders")
    with pytest.raises(
        InvalidOptionError, match=r"name the catalog, or write \./db\.orders for a directory of this name"
    ):
        create("db.orders", parse_ddl("id long"))
    assert list(tmp_path.iterdir()) == []
    create("./db.orders", parse_ddl("id long"))
    assert open_table("db.orders").location == str(tmp_path / "db.orders")


def test_a_table_that_nobody_makes(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="with create=True the sink creates it"):
        IcebergSink(str(tmp_path / "t")).stream(Calls.EVERY).table(None, None)
