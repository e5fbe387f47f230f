"""Partition fields whose source column is dropped: files of the old spec stay, and every writer goes on with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.manifests import partition_sources
from streamlake.read.metadata_tables import manifest_rows
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.transforms import Void
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.replace_partitions import ReplacePartitions
from streamlake.table.updates.metadata_changes import changed, with_schema
from streamlake.table.updates.metadata_update import commit_metadata
from tests.helpers import foreign_writers
from tests.helpers.batch_write import append, write_files
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

DDL = "id long not null, part int, v string"
MERGES_EARLY = {"commit.manifest.min-count-to-merge": "3"}


def drop_column(location: str, column: str, *, old_schemas: bool = True) -> None:
    """As Spark does it: the schema without the column. `old_schemas` False: expiring snapshots has removed the others."""

    def change(base: TableMetadata) -> TableMetadata:
        fields = tuple(part for part in base.schema.fields if part.name != column)
        new = with_schema(base, replace(base.schema, fields=fields), base.last_column_id)
        if old_schemas:
            return new
        snapshots = tuple(replace(each, schema_id=new.current_schema_id) for each in new.snapshots)
        return changed(new, schemas=(new.schema,), snapshots=snapshots)

    commit_metadata(open_table(location), change)
    partition_sources._known.clear()


def rows(table, *records):
    return pa.Table.from_pylist(list(records), schema=schema_to_arrow(table.schema, field_ids=False))


def content(location) -> dict[int, str]:
    found = load_table(str(location)).scan().to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("old_schemas", [True, False], ids=["schema", "manifest"])
@pytest.mark.parametrize("partition_by", ["part", "bucket(4, part)"])
@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_upserts_go_on(tmp_path, version, delete_mode, partition_by, old_schemas):
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", DDL, (partition_by,), version, MERGES_EARLY)
    stream = LocalUpserts(location, key=["id"], delete_mode=delete_mode)
    stream.checkpoint(rows(stream.table, *({"id": n, "part": [5, 200][n % 2], "v": "a"} for n in range(6))))
    stream.checkpoint(rows(stream.table, *({"id": n, "part": [5, 200][n % 2], "v": "b"} for n in range(3))))
    foreign_writers.evolve(location, [])
    stream.checkpoint(rows(stream.table, {"id": 9, "part": 5, "v": "z"}))
    drop_column(location, "part", old_schemas=old_schemas)
    for n in range(3):
        stream.checkpoint(rows(open_table(location), {"id": n, "v": f"c{n}"}, {"id": n + 3, "v": "d"}))
    assert content(location) == {0: "c0", 1: "c1", 2: "c2", 3: "d", 4: "d", 5: "d", 9: "z"}
    check_table(open_table(location), files_exist=True)


@pytest.mark.parametrize("old_schemas", [True, False], ids=["schema", "manifest"])
@pytest.mark.parametrize("partition_by", ["part", "bucket(4, part)"])
@pytest.mark.parametrize("operation", ["append", "overwrite", "dynamic-overwrite"])
def test_other_commits_go_on(tmp_path, operation, partition_by, old_schemas):
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", DDL, (partition_by,), 2, MERGES_EARLY)
    for n in range(2):
        append(open_table(location), rows(open_table(location), {"id": n, "part": 200, "v": "a"}))
    foreign_writers.evolve(location, [])
    drop_column(location, "part", old_schemas=old_schemas)
    before = {entry.data_file.partition for entry in live_entries(open_table(location))}
    for n in range(3):
        table = open_table(location)
        new = rows(table, {"id": 10 + n, "v": "b"})
        if operation == "append":
            append(table, new)
            held = {entry.data_file.partition for entry in live_entries(open_table(location))}
            assert before < held  # merged manifests have the values that were there
        elif operation == "overwrite":
            files = write_files(table, new).data_files
            OverwriteFiles(table).overwrite_by_filter("true").add_file(files[0]).commit()
        else:
            ReplacePartitions(table).add_file(write_files(table, new).data_files[0]).commit()
    kept = {0: "a", 1: "a"} if operation == "append" else {}
    fresh = {10: "b", 11: "b", 12: "b"} if operation == "append" else {12: "b"}
    assert content(location) == {**kept, **fresh}
    check_table(open_table(location), files_exist=True)


VALUES = {
    "int": (200, "200"),
    "long": (1 << 40, str(1 << 40)),
    "date": (date(2022, 3, 4), "2022-03-04"),
    "decimal(9,2)": (Decimal("-12.50"), "-12.50"),
    "decimal(38,4)": (Decimal("12345678901234567890.1234"), "12345678901234567890.1234"),
    "uuid": (UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479").bytes, "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
    "binary": (b"\xff\x00", "/wA="),
    "double": (2.5, "2.5"),
    "boolean": (True, "true"),
    "string": ("ä", "ä"),
}


@pytest.mark.parametrize("old_schemas", [True, False], ids=["schema", "manifest"])
@pytest.mark.parametrize("column_type", VALUES)
def test_manifests_of_every_type_are_shown_and_merged(tmp_path, column_type, old_schemas):
    location = str(tmp_path / "t")
    value, text = VALUES[column_type]
    make_table(tmp_path / "t", f"id long, part {column_type}, v string", ("part",), 2, MERGES_EARLY)
    for n in range(2):
        append(open_table(location), rows(open_table(location), {"id": n, "part": value, "v": "a"}))
    shown = manifest_rows(open_table(location), open_table(location).current_snapshot)
    partitions = {entry.data_file.partition for entry in live_entries(open_table(location))}
    foreign_writers.evolve(location, [])
    drop_column(location, "part", old_schemas=old_schemas)
    table = open_table(location)
    assert manifest_rows(table, table.current_snapshot) == shown
    if column_type != "uuid":  # bounds of UUIDs are not written
        assert {each["lower_bound"] for row in shown for each in row["partition_summaries"]} == {text}
    for n in range(3):
        append(open_table(location), rows(open_table(location), {"id": 10 + n, "v": "b"}))
    assert {e.data_file.partition for e in live_entries(open_table(location))} == partitions | {()}
    merged = manifest_rows(open_table(location), open_table(location).current_snapshot)
    if column_type != "uuid":
        bounds = {each["upper_bound"] for row in merged for each in row["partition_summaries"]}
        assert bounds == {text}


def test_a_void_field_of_a_dropped_column_is_written(tmp_path: Path) -> None:
    """A field that a table of version 1 drops becomes void; beside another field the spec stays partitioned."""
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", DDL, ("part", "bucket(2, id)"), 2)
    append(open_table(location), rows(open_table(location), {"id": 1, "part": 5, "v": "a"}))

    def void(base: TableMetadata) -> TableMetadata:
        first, second = base.spec.fields
        spec = replace(base.spec, spec_id=1, fields=(replace(first, transform=Void()), second))
        return changed(base, specs=(*base.specs, spec), default_spec_id=1)

    commit_metadata(open_table(location), void)
    drop_column(location, "part")
    append(open_table(location), rows(open_table(location), {"id": 2, "v": "b"}))
    stream = LocalUpserts(location, key=["id"])
    stream.checkpoint(rows(stream.table, {"id": 1, "v": "c"}, {"id": 3, "v": "d"}))
    assert content(location) == {1: "c", 2: "b", 3: "d"}
    check_table(open_table(location), files_exist=True)
