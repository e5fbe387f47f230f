"""Rows that other writers deleted: position deletes, equality deletes, deletion vectors."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from pyroaring import BitMap

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, MissingFileError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.data_files import open_data_writer
from streamlake.formats.deletes.position_deletes import POSITION_DELETES
from streamlake.formats.parquet.row_groups import RowGroups
from streamlake.read.delete_index import DeleteFileIndex
from streamlake.read.deletes import DeleteReader
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestEntry
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.data_types import LongType, NestedField, StringType
from streamlake.spec.types.schema import Schema
from streamlake.storage.local import LocalFileIO
from streamlake.table.producers.snapshot_producer import SnapshotProducer
from streamlake.tables import create_table
from tests.unit.read.written_tables import append, data_files


class RowDelta(SnapshotProducer):
    operation = "overwrite"

    def add(self, *files):
        for file in files:
            self._new.add(file, self._table.metadata)
        self.commit()


def delta(table, *files):
    RowDelta(table.table).add(*files)
    table.refresh()


@pytest.fixture(params=["parquet", "avro", "orc"])
def file_format(request):
    return request.param


COLUMNS = "id long, category string, st struct<x:long,y:string>"


@pytest.fixture
def table(tmp_path):
    table = create_table(tmp_path / "t", COLUMNS, partition_by=["category"])
    append(table, [row(n) for n in range(20)])
    return table


def row(n):
    return {"id": n, "category": "ab"[n % 2], "st": {"x": n // 2, "y": "even" if n % 2 == 0 else None}}


def file_of(table, category):
    files = [task.data_file for task in table.scan().plan_files()]
    return next(file for file in files if file.partition == (category,))


def delete_file(table, name, rows, schema, file_format="parquet", **fields):
    path = f"{table.location}/data/{name}.{file_format}"
    writer = open_data_writer(file_format, table.table.io, path, schema)
    writer.write(pa.Table.from_pylist(rows, schema=schema_to_arrow(schema)))
    metrics = writer.close()
    return DataFile(
        file_path=path,
        file_format=file_format,
        record_count=metrics.record_count,
        file_size_in_bytes=metrics.file_size_in_bytes,
        lower_bounds=metrics.lower_bounds,
        upper_bounds=metrics.upper_bounds,
        **fields,
    )


def position_deletes(table, name, pairs, partition, file_format="parquet", **fields):
    rows = [{"file_path": path, "pos": pos} for path, pos in sorted(pairs)]
    return delete_file(
        table,
        name,
        rows,
        POSITION_DELETES,
        file_format,
        content=FileContent.POSITION_DELETES,
        spec_id=0,
        partition=partition,
        **fields,
    )


def equality_deletes(table, name, rows, columns, partition, spec_id=0, file_format="parquet"):
    schema = table.schema.select(columns)
    ids = tuple(table.schema.find(column).field_id for column in columns)
    return delete_file(
        table,
        name,
        rows,
        schema,
        file_format,
        content=FileContent.EQUALITY_DELETES,
        spec_id=spec_id,
        partition=partition,
        equality_ids=ids,
    )


def ids(scan):
    return sorted(scan.to_arrow()["id"].to_pylist())


def without(*gone):
    return [n for n in range(20) if n not in gone]


def test_position_deletes(table, file_format):
    path = file_of(table, "a").file_path
    delta(table, position_deletes(table, "d1", [(path, 0), (path, 3), ("elsewhere", 1)], ("a",), file_format))
    assert ids(table.scan()) == without(0, 6)
    assert table.scan().count() == 18
    assert ids(table.scan("id < 8 and category = 'a'")) == [2, 4]
    assert table.scan("id < 8 and category = 'a'").count() == 2
    assert ids(table.scan("category = 'b'")) == list(range(1, 20, 2))
    kept = table.scan("id < 10 and category = 'a'", columns=["id", "_pos"]).to_arrow().to_pylist()
    assert kept == [{"id": 2, "_pos": 1}, {"id": 4, "_pos": 2}, {"id": 8, "_pos": 4}]
    assert ids(table.scan(snapshot_id=table.snapshots[0].snapshot_id)) == list(range(20))


def test_position_deletes_apply_to_their_partition_and_their_own_commit(table):
    added = data_files(table, [row(100), row(102)])
    path = file_of(table, "a").file_path
    elsewhere = position_deletes(table, "d1", [(path, 0)], ("b",))
    own = position_deletes(
        table, "d2", [(added[0].file_path, 0)], ("a",), referenced_data_file=added[0].file_path
    )
    delta(table, *added, elsewhere, own)
    assert ids(table.scan()) == [*range(20), 102]


def test_position_deletes_do_not_reach_later_files(table):
    delta(table, position_deletes(table, "d1", [(file_of(table, "a").file_path, 1)], ("a",)))
    append(table, [row(200)])
    tasks = {task.data_file.record_count: task for task in table.scan("category = 'a'").plan_files()}
    assert len(tasks[10].delete_files) == 1
    assert tasks[1].delete_files == ()


def test_files_outside_of_the_path_bounds_are_not_burdened(table):
    path = file_of(table, "a").file_path
    delta(table, position_deletes(table, "d1", [("aaa", 1)], ("a",)))
    assert all(not task.delete_files for task in table.scan().plan_files())
    delta(table, position_deletes(table, "d2", [(path, 1), (path, 2)], ("a",)))
    assert ids(table.scan()) == without(2, 4)


def test_a_position_delete_file_with_one_exact_path_is_of_that_file(table):
    """Bounds that are equal are whole paths, which is all that metadata says in tables of older writers."""
    paths = {category: file_of(table, category).file_path for category in "ab"}
    exact = {2147483546: paths["a"].encode()}
    file = replace(
        position_deletes(table, "d1", [(paths["a"], 1)], ("a",)), lower_bounds=exact, upper_bounds=exact
    )
    elsewhere = replace(file, file_path=file.file_path + "x", partition=("b",))
    entries = [ManifestEntry(EntryStatus.ADDED, 1, 2, 2, each) for each in (file, elsewhere)]
    index = DeleteFileIndex(table.specs, entries)
    assert index.deletes_of(file_of(table, "a"), 1) == (file,)
    assert index.deletes_of(file_of(table, "a"), 3) == ()
    assert index.deletes_of(file_of(table, "b"), 1) == ()


def test_a_delete_of_a_file_in_another_partition_is_an_error(table):
    path = file_of(table, "a").file_path
    delta(table, position_deletes(table, "d1", [(path, 1)], ("b",), referenced_data_file=path))
    with pytest.raises(DataInvalidError, match="is of another partition"):
        table.scan().to_arrow()
    assert ids(table.scan("category = 'b'")) == list(range(1, 20, 2))


def test_equality_deletes(table, file_format):
    gone = [{"id": 4}, {"id": 5}, {"id": 1000}]
    delta(table, equality_deletes(table, "e1", gone, ["id"], ("a",), file_format=file_format))
    assert ids(table.scan()) == without(4)
    assert ids(table.scan("category = 'a' and id < 7", columns=["id"])) == [0, 2, 6]
    assert table.scan(columns=["category"]).to_arrow().num_rows == 19
    assert table.scan().count() == 19
    # Strictly older files only.
    delta(
        table,
        *data_files(table, [row(4)]),
        equality_deletes(table, "e2", [{"id": 6}, {"id": 4}], ["id"], ("a",)),
    )
    assert ids(table.scan()) == without(6)


def test_equality_deletes_by_several_nullable_and_nested_columns(table):
    gone = [{"id": 1, "st": {"y": None}}, {"id": 2, "st": {"y": None}}, {"id": 4, "st": {"y": "even"}}]
    schema_names = ["id", "st.y"]
    delta(table, equality_deletes(table, "e1", gone, schema_names, ("a",)))
    delta(table, equality_deletes(table, "e2", gone, schema_names, ("b",)))
    assert ids(table.scan()) == without(1, 4)
    found = table.scan("id < 6", columns=["st.x"]).to_arrow()
    assert found.schema.field("st").type.num_fields == 1
    assert sorted(each["st"]["x"] for each in found.to_pylist()) == [0, 1, 1, 2]


def test_global_equality_deletes(tmp_path):
    table = create_table(tmp_path / "t", COLUMNS, partition_by=["category"])
    base = table.metadata
    table.table.operations.commit(base, replace(base, specs=(*base.specs, PartitionSpec(1))))
    table.refresh()
    append(table, [row(n) for n in range(20)])
    delta(table, equality_deletes(table, "e1", [{"id": 3}, {"id": 4}], ["id"], (), spec_id=1))
    assert ids(table.scan()) == without(3, 4)
    assert ids(table.scan("category = 'a'")) == [n for n in without(4) if n % 2 == 0]


def test_equality_deletes_by_a_column_that_was_dropped(table):
    delta(table, equality_deletes(table, "e1", [{"id": 4}], ["id"], ("a",)))
    base = table.metadata
    fields = (
        *(part for part in base.schema.fields if part.name != "id"),
        NestedField(90, "id", StringType()),
    )
    dropped = Schema(fields, schema_id=1)
    new = replace(base, schemas=(*base.schemas, dropped), current_schema_id=1, last_column_id=90)
    table.table.operations.commit(base, new)
    table.refresh()
    found = table.scan("category = 'a'").to_arrow()
    assert found.schema.names == ["category", "st", "id"]
    assert sorted(each["x"] for each in found["st"].to_pylist()) == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def deletion_vector(table, target, positions, name="dv", **fields):
    body = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + BitMap(positions).serialize()
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    path = f"{table.location}/data/{name}.puffin"
    table.table.io.write_bytes(path, b"PFA1" + blob + b"rest of the file")
    return DataFile(
        content=FileContent.POSITION_DELETES,
        file_path=path,
        file_format="puffin",
        spec_id=0,
        partition=target.partition,
        record_count=fields.pop("record_count", len(positions)),
        file_size_in_bytes=len(blob) + 20,
        referenced_data_file=target.file_path,
        content_offset=4,
        content_size_in_bytes=len(blob),
        **fields,
    )


@pytest.fixture
def v3_table(tmp_path):
    table = create_table(tmp_path / "v3", COLUMNS, partition_by=["category"], format_version=3)
    append(table, [row(n) for n in range(20)])
    return table


def test_deletion_vectors(v3_table):
    target = file_of(v3_table, "a")
    delta(v3_table, deletion_vector(v3_table, target, [0, 9]))
    assert ids(v3_table.scan()) == without(0, 18)
    assert v3_table.scan("id >= 10").count() == 9
    lineage = v3_table.scan("id < 6 and category = 'a'", columns=["id", "_row_id"]).to_arrow().to_pylist()
    assert [each["id"] for each in lineage] == [2, 4]
    assert lineage[1]["_row_id"] - lineage[0]["_row_id"] == 1


def test_a_deletion_vector_takes_the_place_of_position_deletes(v3_table):
    target = file_of(v3_table, "a")
    vector = ManifestEntry(EntryStatus.ADDED, 1, 3, 3, deletion_vector(v3_table, target, [1]))
    older = position_deletes(v3_table, "d", [(target.file_path, 0)], ("a",))
    index = DeleteFileIndex(v3_table.specs, [ManifestEntry(EntryStatus.ADDED, 1, 2, 2, older), vector])
    assert index.deletes_of(target, 1) == (vector.data_file,)


def test_damage_is_never_ignored(v3_table):
    target = file_of(v3_table, "a")
    delta(v3_table, deletion_vector(v3_table, target, [0, 9], record_count=3))
    with pytest.raises(DataInvalidError, match="2 deleted positions, the manifest says 3"):
        v3_table.scan().to_arrow()


def test_two_vectors_for_one_file_are_an_error(v3_table):
    target = file_of(v3_table, "a")
    delta(
        v3_table,
        deletion_vector(v3_table, target, [0], name="dv1"),
        deletion_vector(v3_table, target, [1], name="dv2"),
    )
    with pytest.raises(DataInvalidError, match="two deletion vectors"):
        v3_table.scan().to_arrow()


def test_a_missing_delete_file_is_an_error(table):
    file = position_deletes(table, "d1", [(file_of(table, "a").file_path, 0)], ("a",))
    delta(table, file)
    table.table.io.delete(file.file_path)
    with pytest.raises(MissingFileError, match="d1"):
        table.scan().to_arrow()
    assert ids(table.scan("category = 'b'")) == list(range(1, 20, 2))


def test_equality_deletes_of_one_scope_are_read_once(table, monkeypatch):
    """Whatever the number of data files: each delete file is opened once per scan."""
    for at in range(3):
        delta(
            table,
            *data_files(table, [row(at), row(at + 100)]),
            equality_deletes(table, f"e{at}", [{"id": at}, {"id": at + 1}], ["id"], ("a",)),
            equality_deletes(table, f"f{at}", [{"id": at}], ["id"], ("b",)),
        )
    opened = opened_files(monkeypatch)
    found = ids(table.scan())
    deletes = [name for name in opened if name[0] in "ef"]
    assert sorted(deletes) == ["e0", "e1", "e2", "f0", "f1", "f2"]
    assert [n for n in found if 3 <= n < 100] == list(range(3, 20))


def opened_files(monkeypatch):
    """The names, without endings, of the files that are opened for reading from now on."""
    opened = []
    open_input = LocalFileIO.open_input

    def recorded(io, path):
        opened.append(path.rsplit("/", 1)[1].split(".")[0])
        return open_input(io, path)

    monkeypatch.setattr(LocalFileIO, "open_input", recorded)
    return opened


def test_deletes_that_cannot_match_the_filter_are_not_read(table, monkeypatch):
    delta(table, equality_deletes(table, "e1", [{"id": 2}, {"id": 4}], ["id"], ("a",)))
    delta(table, equality_deletes(table, "e2", [{"id": 10}, {"id": 12}], ["id"], ("a",)))
    whole = equality_deletes(table, "e3", [{"id": 14, "category": "a"}], ["id", "category"], ("a",))
    # It compares the categories; the ids that it happens to hold are those of deleted rows, not of all that go.
    delta(table, replace(whole, equality_ids=(2,)))
    append(table, [row(10), row(16)])
    opened = opened_files(monkeypatch)
    assert ids(table.scan("id >= 10 and category = 'a'")) == [10, 16]
    assert [name for name in opened if name[0] == "e"] == ["e2", "e3"]


def test_row_groups_without_live_rows_are_left_alone(tmp_path, monkeypatch):
    """Their other columns are not read: what is read of a file follows its live rows."""
    table = create_table(tmp_path / "t", "id long, payload string")
    rows = pa.table({"id": range(4000), "payload": [f"{n:0200d}" for n in range(4000)]})
    groups = {"write.parquet.row-group-size-bytes": "100000"}
    files = [data_files(table, rows, **groups)[0] for _ in range(2)]
    delta(table, *files)
    keys = [{"id": n} for n in range(4000) if n not in (1700, 1701)]
    delta(table, equality_deletes(table, "e1", keys, ["id"], ()))
    places = [(files[0].file_path, n) for n in range(1000)]
    delta(table, position_deletes(table, "d1", places, (), referenced_data_file=files[0].file_path))
    asked = []
    batches = RowGroups.batches

    def recorded(self, group, schema, live=None):
        asked.append((group.first, tuple(part.name for part in schema.fields)))
        return batches(self, group, schema, live)

    monkeypatch.setattr(RowGroups, "batches", recorded)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1700, 1700, 1701, 1701]
    payload = {first for first, names in asked if "payload" in names}
    assert len(payload) == 1
    assert len({first for first, names in asked if "id" in names}) > 5
    asked.clear()
    assert table.scan().count() == 4
    assert {names for _, names in asked} == {("id", "_pos")}


def test_counts_read_no_more_than_they_need(table, v3_table, monkeypatch):
    target = file_of(v3_table, "a")
    delta(v3_table, deletion_vector(v3_table, target, [0, 9]))
    path = file_of(table, "a").file_path
    # One place twice, and one that the file does not have.
    places = [(path, 0), (path, 0), (path, 3), (path, 77)]
    delta(table, position_deletes(table, "d1", places, ("a",), referenced_data_file=path))
    opened = opened_files(monkeypatch)
    assert v3_table.scan().count() == 18
    assert v3_table.scan("category = 'a'").count() == 8
    assert opened == []
    assert table.scan().count() == 18
    assert table.scan("category = 'b'").count() == 10
    assert opened == ["d1"]
    delta(table, equality_deletes(table, "e1", [{"id": 8}, {"id": 6}], ["id"], ("a",)))
    assert table.scan().count() == 17
    delta(v3_table, equality_deletes(v3_table, "e1", [{"id": 8}, {"id": 0}], ["id"], ("a",)))
    assert v3_table.scan().count() == 17


def test_a_vector_of_a_file_that_is_gone_counts_for_nothing(v3_table):
    delta(v3_table, deletion_vector(v3_table, replace(file_of(v3_table, "a"), file_path="gone"), [0, 9]))
    assert v3_table.scan().count() == 20
    assert ids(v3_table.scan()) == list(range(20))


def test_a_delete_file_without_its_key_column_is_an_error(table, file_format):
    """It would be one of nulls otherwise."""
    for columns, key in ((["st.x"], "id"), (["id"], "st.y"), (["st.x"], "st.y")):
        file = equality_deletes(
            table, f"e-{key}", [{"id": 4, "st": {"x": 2}}], columns, ("a",), file_format=file_format
        )
        delta(table, replace(file, equality_ids=(table.schema.find(key).field_id,)))
        with pytest.raises(DataInvalidError, match="is missing from the file"):
            table.scan().to_arrow()


def test_keys_that_cannot_be_compared_are_refused(tmp_path):
    table = create_table(tmp_path / "t", "id long, tags list<string>, m map<string,long>")
    append(table, [{"id": 1, "tags": ["a"], "m": [("k", 1)]}])
    file = equality_deletes(table, "e1", [{"id": 1}], ["id"], ())
    for name in ("tags", "tags.element", "m.value"):
        index = DeleteFileIndex(
            table.specs,
            [
                ManifestEntry(
                    EntryStatus.ADDED,
                    1,
                    9,
                    9,
                    replace(file, equality_ids=(table.schema.find(name).field_id,)),
                )
            ],
        )
        target = next(iter(table.scan().plan_files()))
        task = replace(
            target,
            delete_files=index.deletes_of(target.data_file, 1),
            equality_deletes=index.equality_deletes_of(target.data_file, 1),
        )
        reader = DeleteReader(table.table.io, [table.schema], None)
        with pytest.raises(FeatureUnsupportedError, match=f"equality deletes by '{name}'"):
            reader.deleted_rows(task)


def test_an_equality_delete_without_ids_is_an_error(table):
    file = equality_deletes(table, "e1", [{"id": 4}], ["id"], ("a",))
    delta(table, replace(file, equality_ids=None))
    with pytest.raises(DataInvalidError, match="without equality ids"):
        table.scan().to_arrow()


def test_many_deletes_against_brute_force(tmp_path):
    import random

    random.seed(7)
    table = create_table(tmp_path / "t", "id long")
    live = {}
    for commit in range(6):
        files = data_files(table, [{"id": n} for n in range(commit * 50, commit * 50 + 50)])
        delta(table, *files)
        live.update({(files[0].file_path, n): commit * 50 + n for n in range(50)})
        gone = random.sample(sorted(live), 15)
        deleted = delete_file(
            table,
            f"d{commit}",
            [{"file_path": path, "pos": pos} for path, pos in sorted(gone[:10])],
            POSITION_DELETES,
            content=FileContent.POSITION_DELETES,
            spec_id=0,
            partition=(),
        )
        keys = [live[place] for place in gone[10:]]
        schema = Schema((NestedField(1, "id", LongType()),))
        by_key = delete_file(
            table,
            f"e{commit}",
            [{"id": key} for key in keys],
            schema,
            content=FileContent.EQUALITY_DELETES,
            spec_id=0,
            partition=(),
            equality_ids=(1,),
        )
        delta(table, deleted, by_key)
        for place in gone:
            del live[place]
        assert ids(table.scan()) == sorted(live.values())
        assert table.scan("id > 60").count() == sum(value > 60 for value in live.values())
