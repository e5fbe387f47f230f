"""Manifests and manifest lists: what is written, what others read, what is inherited, what damage looks like."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError, MissingFileError
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.manifest_lists import (
    assign_ids,
    read_manifest_list,
    snapshot_manifests,
    write_manifest_list,
)
from streamlake.formats.manifests.manifests import partition_summaries, read_manifest, write_manifest
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import (
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, PartitionSpec, parse_partition_by
from streamlake.spec.types.data_types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import to_bytes
from streamlake.storage.file_io import FileIO
from streamlake.storage.local import LocalFileIO

SCHEMA = parse_ddl(
    "id long not null, name string, ts timestamp, tz timestamptz, amount double, price decimal(20,2), "
    "key uuid, code fixed[3], raw binary, flag boolean, d date, t time, ratio float, i int"
)
SPEC = parse_partition_by(
    [
        "day(ts)",
        "bucket(16, id)",
        "name",
        "price",
        "key",
        "code",
        "raw",
        "flag",
        "d",
        "t",
        "ratio",
        "amount",
        "i",
        "hour(tz)",
        "truncate(10, id)",
    ],
    SCHEMA,
)
PARTITION = (
    -1,
    3,
    "caf\u00e9 \u65e5",
    Decimal("-12345678901234567.89"),
    uuid.UUID(int=5 << 100),
    b"abc",
    b"\x00\xff",
    True,
    -719162,
    86_399_999_999,
    -0.0,
    1.5,
    -(2**31),
    475_000,
    2**62,
)
NULLS = tuple([None] * len(PARTITION))
FULL = DataFile(
    content=FileContent.DATA,
    file_path="/t/data/00000-0-u-00001.parquet",
    file_format="parquet",
    spec_id=0,
    partition=PARTITION,
    record_count=100,
    file_size_in_bytes=2**40,
    column_sizes={1: 10, 2: 2**50},
    value_counts={1: 100, 2: 100},
    null_value_counts={1: 0, 2: 8191},
    nan_value_counts={5: 8192},
    lower_bounds={1: b"\x01" * 8, 2: b""},
    upper_bounds={1: b"\xff" * 8, 2: b"z" * 200},
    key_metadata=b"k",
    split_offsets=(4, 1000),
    sort_order_id=0,
)


@pytest.fixture
def io() -> LocalFileIO:
    return LocalFileIO()


def added(file: DataFile, **changes: Any) -> ManifestEntry:
    return ManifestEntry(EntryStatus.ADDED, None, None, None, replace(file, **changes))


def plain(path: str, rows: int = 10, **changes: Any) -> DataFile:
    return DataFile(FileContent.DATA, path, "parquet", 0, (), rows, 1000, **changes)


def write(
    io: FileIO,
    path: Path,
    entries: list[ManifestEntry],
    *,
    spec: PartitionSpec = SPEC,
    schema: Schema = SCHEMA,
    version: int = 2,
    content: ManifestContent = ManifestContent.DATA,
    snapshot_id: int | None = 77,
) -> ManifestFile:
    return write_manifest(io, str(path), entries, spec, schema, version, content, snapshot_id)


def listed(manifest: ManifestFile, sequence_number: int = 9, **changes: Any) -> ManifestFile:
    (one,), _ = assign_ids([manifest], 77, sequence_number)
    return replace(one, **changes)


def avro(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        return dict(reader.metadata), [record for record in reader if isinstance(record, dict)]


@pytest.mark.parametrize("version", [2, 3])
def test_round_trip_of_every_field(io: LocalFileIO, tmp_path: Path, version: int) -> None:
    files = [FULL, replace(FULL, partition=NULLS, column_sizes=None, lower_bounds={}, split_offsets=None)]
    files.append(replace(plain("/t/x"), partition=NULLS))
    manifest = write(io, tmp_path / "m.avro", [added(file) for file in files], version=version)
    entries = read_manifest(io, listed(manifest), {0: SPEC})
    assert [entry.data_file for entry in entries] == files
    assert str(entries[0].data_file.partition[10]) == "-0.0"
    assert {(e.status, e.snapshot_id, e.sequence_number, e.file_sequence_number) for e in entries} == {
        (EntryStatus.ADDED, 77, 9, 9)
    }
    assert manifest.manifest_length == (tmp_path / "m.avro").stat().st_size


def test_v3_fields(io: LocalFileIO, tmp_path: Path) -> None:
    vector = DataFile(
        FileContent.POSITION_DELETES,
        "/t/data/dv.puffin",
        "puffin",
        0,
        (),
        3,
        400,
        referenced_data_file="/t/data/a.parquet",
        content_offset=4,
        content_size_in_bytes=50,
        first_row_id=12,
    )
    manifest = write(
        io,
        tmp_path / "m.avro",
        [added(vector)],
        spec=UNPARTITIONED,
        version=3,
        content=ManifestContent.DELETES,
    )
    (entry,) = read_manifest(io, listed(manifest, first_row_id=None), {0: UNPARTITIONED})
    assert entry.data_file == replace(vector, first_row_id=None)


def test_equality_deletes_and_referenced_file_in_v2(io: LocalFileIO, tmp_path: Path) -> None:
    equality = DataFile(FileContent.EQUALITY_DELETES, "/e", "parquet", 0, (), 1, 1, equality_ids=(1, 2))
    position = DataFile(FileContent.POSITION_DELETES, "/p", "avro", 0, (), 1, 1, referenced_data_file="/d")
    manifest = write(
        io,
        tmp_path / "m.avro",
        [added(equality), added(position)],
        spec=UNPARTITIONED,
        content=ManifestContent.DELETES,
    )
    entries = read_manifest(io, listed(manifest), {0: UNPARTITIONED})
    assert [entry.data_file for entry in entries] == [equality, position]
    assert avro(tmp_path / "m.avro")[0]["content"] == "deletes"


def test_stats_can_be_skipped(io: LocalFileIO, tmp_path: Path) -> None:
    manifest = listed(write(io, tmp_path / "m.avro", [added(FULL)]))
    (entry,) = read_manifest(io, manifest, {0: SPEC}, with_stats=False)
    assert entry.data_file == replace(
        FULL,
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=None,
        upper_bounds=None,
    )


def test_many_entries_over_many_blocks(io: LocalFileIO, tmp_path: Path) -> None:
    entries = [added(plain(f"/t/data/{at}", rows=at)) for at in range(1001)]
    manifest = listed(write(io, tmp_path / "m.avro", entries, spec=UNPARTITIONED))
    read = read_manifest(io, manifest, {0: UNPARTITIONED})
    assert [entry.data_file.record_count for entry in read] == list(range(1001))


def test_an_empty_manifest(io: LocalFileIO, tmp_path: Path) -> None:
    manifest = write(io, tmp_path / "m.avro", [])
    assert read_manifest(io, listed(manifest), {0: SPEC}) == []
    assert not manifest.may_have_live_files


def test_avro_metadata_and_field_ids(io: LocalFileIO, tmp_path: Path) -> None:
    schema = parse_ddl(
        "id long not null, `8 odd-n\u00e4me` string, big decimal(20,2), k uuid, at timestamptz"
    )
    spec = replace(parse_partition_by(["8 odd-n\u00e4me", "big", "k", "at", "day(at)"], schema), spec_id=4)
    file = replace(plain("/f"), spec_id=4, partition=("x", Decimal("1.00"), uuid.UUID(int=1), 5, 0))
    write(io, tmp_path / "m.avro", [added(file)], spec=spec, schema=replace(schema, schema_id=3), version=3)
    metadata, _ = avro(tmp_path / "m.avro")
    assert json.loads(metadata["schema"])["fields"][0]["name"] == "id"
    assert [part["field-id"] for part in json.loads(metadata["partition-spec"])] == [
        1000,
        1001,
        1002,
        1003,
        1004,
    ]
    assert {
        key: metadata[key] for key in ("schema-id", "partition-spec-id", "format-version", "content")
    } == {
        "schema-id": "3",
        "partition-spec-id": "4",
        "format-version": "3",
        "content": "data",
    }
    assert metadata["avro.codec"] == "deflate"
    entry = json.loads(metadata["avro.schema"])
    ids = {part["name"]: part["field-id"] for part in entry["fields"]}
    assert ids == {
        "status": 0,
        "snapshot_id": 1,
        "sequence_number": 3,
        "file_sequence_number": 4,
        "data_file": 2,
    }
    data_file = {part["name"]: part for part in entry["fields"][-1]["type"]["fields"]}
    sizes = data_file["column_sizes"]["type"][1]
    assert sizes["logicalType"] == "map"
    assert sizes["items"]["name"] == "k117_v118"
    assert [part["field-id"] for part in sizes["items"]["fields"]] == [117, 118]
    assert data_file["split_offsets"]["type"][1]["element-id"] == 133
    odd, big, key, at, day = data_file["partition"]["type"]["fields"]
    assert (odd["name"], odd["iceberg-field-name"]) == ("_8_x20odd_x2Dn\u00e4me", "8 odd-n\u00e4me")
    assert (odd["field-id"], odd["default"]) == (1000, None)
    assert big["type"][1] == {
        "type": "fixed",
        "name": "decimal_20_2",
        "size": 9,
        "logicalType": "decimal",
        "precision": 20,
        "scale": 2,
    }
    assert key["type"][1] == {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
    assert at["type"][1] == {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}
    assert day["type"][1]["type"] == "int"


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("x date", (-(2**31), 2**31 - 1)),
        ("x timestamp", (-(2**63), 2**63 - 1)),
        ("x timestamptz_ns", (-(2**63), 2**63 - 1)),
        ("x decimal(38,0)", (Decimal(10**38 - 1), Decimal(1 - 10**38))),
    ],
)
def test_partition_values_beyond_pythons_calendar(
    io: LocalFileIO, tmp_path: Path, ddl: str, values: tuple[Any, ...]
) -> None:
    schema = parse_ddl(ddl)
    spec = parse_partition_by(["x"], schema)
    entries = [added(plain("/f"), partition=(value,)) for value in values]
    manifest = write(io, tmp_path / "m", entries, spec=spec, schema=schema, version=3)
    read = read_manifest(io, listed(manifest), {0: spec})
    assert [entry.data_file.partition[0] for entry in read] == list(values)


def test_fields_without_ids_are_found_by_name(io: LocalFileIO, tmp_path: Path) -> None:
    manifest = listed(write(io, tmp_path / "m", [added(FULL)]))
    metadata, _ = avro(tmp_path / "m")
    bare = json.loads(
        metadata["avro.schema"],
        object_hook=lambda part: {key: part[key] for key in part if key != "field-id"},
    )
    with (tmp_path / "m").open("rb") as stream:
        records = list(fastavro.reader(stream))
    with (tmp_path / "m").open("wb") as stream:
        fastavro.writer(stream, bare, records)
    (entry,) = read_manifest(io, replace(manifest, manifest_length=0), {0: SPEC})
    assert entry.data_file == FULL
    (entry,) = read_manifest(io, replace(manifest, manifest_length=0), {0: SPEC}, with_stats=False)
    assert (entry.data_file.partition, entry.data_file.lower_bounds) == (PARTITION, None)


def test_two_partition_fields_of_one_fixed_type(io: LocalFileIO, tmp_path: Path) -> None:
    schema = parse_ddl("a decimal(9,2), b decimal(9,2), c uuid, d uuid")
    spec = parse_partition_by(["a", "b", "c", "d"], schema)
    partition = (Decimal("1.10"), Decimal("-2.20"), uuid.UUID(int=1), uuid.UUID(int=2))
    manifest = write(io, tmp_path / "m", [added(plain("/f"), partition=partition)], spec=spec, schema=schema)
    (entry,) = read_manifest(io, listed(manifest), {0: spec})
    assert entry.data_file.partition == partition
    assert len(avro(tmp_path / "m")[1]) == 1


def test_counts_and_sequence_numbers_of_the_manifest(io: LocalFileIO, tmp_path: Path) -> None:
    entries = [
        added(plain("/a", rows=1)),
        ManifestEntry(EntryStatus.EXISTING, 5, 3, 4, plain("/b", rows=20)),
        ManifestEntry(EntryStatus.EXISTING, 5, 7, 7, plain("/c", rows=300)),
        ManifestEntry(EntryStatus.DELETED, 77, 1, 1, plain("/d", rows=4000)),
    ]
    manifest = write(io, tmp_path / "m", entries, spec=UNPARTITIONED)
    assert (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count) == (
        1,
        2,
        1,
    )
    assert (manifest.added_rows_count, manifest.existing_rows_count, manifest.deleted_rows_count) == (
        1,
        320,
        4000,
    )
    assert (manifest.min_sequence_number, manifest.sequence_number) == (3, None)
    read = read_manifest(io, listed(manifest), {0: UNPARTITIONED})
    assert [(e.snapshot_id, e.sequence_number, e.file_sequence_number) for e in read] == [
        (77, 9, 9),
        (5, 3, 4),
        (5, 7, 7),
        (77, 1, 1),
    ]
    live = read_manifest(io, listed(manifest), {0: UNPARTITIONED}, live_only=True)
    assert [entry.data_file.file_path for entry in live] == ["/a", "/b", "/c"]


def test_a_staged_manifest_inherits_from_whatever_commits_it(io: LocalFileIO, tmp_path: Path) -> None:
    staged = write(io, tmp_path / "m", [added(plain("/a"))], spec=UNPARTITIONED, snapshot_id=None)
    assert (staged.added_snapshot_id, staged.sequence_number, staged.min_sequence_number) == (
        None,
        None,
        None,
    )
    (entry,) = read_manifest(io, staged, {0: UNPARTITIONED})
    assert (entry.snapshot_id, entry.sequence_number) == (None, None)
    for snapshot_id, number in ((1, 2), (3, 4)):
        (taken,), _ = assign_ids([staged], snapshot_id, number)
        (entry,) = read_manifest(io, taken, {0: UNPARTITIONED})
        assert (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) == (
            snapshot_id,
            number,
            number,
        )


def test_first_row_ids_are_inherited_in_order(io: LocalFileIO, tmp_path: Path) -> None:
    entries = [
        ManifestEntry(EntryStatus.EXISTING, 5, 3, 3, plain("/data1", rows=25, first_row_id=800)),
        added(plain("/data2", rows=50)),
        ManifestEntry(EntryStatus.DELETED, 77, 1, 1, plain("/gone", rows=7)),
        ManifestEntry(EntryStatus.EXISTING, 5, 3, 3, plain("/before-upgrade", rows=9)),
        added(plain("/data3", rows=50)),
    ]
    manifest = write(io, tmp_path / "m", entries, spec=UNPARTITIONED, version=3)
    read = read_manifest(io, listed(manifest, first_row_id=1000), {0: UNPARTITIONED})
    assert [entry.data_file.first_row_id for entry in read] == [800, 1000, None, 1050, 1059]
    untouched = read_manifest(io, listed(manifest), {0: UNPARTITIONED})
    assert [entry.data_file.first_row_id for entry in untouched] == [800, None, None, None, None]


def test_partition_summaries() -> None:
    nan = float("nan")
    struct = StructType(
        (
            NestedField(1000, "n", LongType()),
            NestedField(1001, "s", StringType()),
            NestedField(1002, "f", DoubleType()),
            NestedField(1003, "void", StringType()),
        )
    )
    rows = [(5, "b", nan, None), (-3, "\uffff", 0.0, None), (None, "\U00010000", -1.0, None)]
    n, s, f, void = partition_summaries(struct, rows) or ()
    assert n == FieldSummary(True, False, to_bytes(LongType(), -3), to_bytes(LongType(), 5))
    assert s == FieldSummary(False, False, b"b", "\U00010000".encode())
    assert f == FieldSummary(False, True, to_bytes(DoubleType(), -1.0), to_bytes(DoubleType(), 0.0))
    assert void == FieldSummary(True, False)
    only_nan = partition_summaries(StructType((NestedField(1000, "f", DoubleType()),)), [(nan,)])
    assert only_nan == (FieldSummary(False, True),)


def test_summaries_of_zero_cover_both_zeros() -> None:
    struct = StructType((NestedField(1000, "f", DoubleType()),))
    for zero in (0.0, -0.0):
        (summary,) = partition_summaries(struct, [(zero,)]) or ()
        assert summary.lower_bound == to_bytes(DoubleType(), -0.0)
        assert summary.upper_bound == to_bytes(DoubleType(), 0.0)


def test_summaries_of_uuids_hold_in_both_orders_or_are_left_out() -> None:
    struct = StructType((NestedField(1000, "u", UUIDType()),))
    low, high = uuid.UUID(int=1 << 64), uuid.UUID(int=(0xF << 124))
    assert partition_summaries(struct, [(low,), (high,)]) is None
    (one,) = partition_summaries(struct, [(high,)]) or ()
    assert one.lower_bound == one.upper_bound == high.bytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: replace(e, data_file=replace(e.data_file, spec_id=1)), "of spec 1"),
        (lambda e: replace(e, data_file=replace(e.data_file, partition=(1,))), "partition"),
        (
            lambda e: replace(e, data_file=replace(e.data_file, content=FileContent.EQUALITY_DELETES)),
            "EQUALITY",
        ),
        (lambda e: replace(e, status=EntryStatus.EXISTING), "no sequence numbers"),
        (lambda e: replace(e, data_file=replace(e.data_file, record_count="many")), "wrong type"),
    ],
)
def test_entries_that_do_not_belong(
    io: LocalFileIO, tmp_path: Path, change: Callable[[ManifestEntry], ManifestEntry], message: str
) -> None:
    with pytest.raises(DataInvalidError, match=message):
        write(io, tmp_path / "m", [change(added(plain("/a")))], spec=UNPARTITIONED)
    assert not (tmp_path / "m").exists()


def test_version_1_is_not_written(io: LocalFileIO, tmp_path: Path) -> None:
    with pytest.raises(FeatureUnsupportedError, match="version 1"):
        write(io, tmp_path / "m", [], version=1)
    with pytest.raises(FeatureUnsupportedError, match="version 1"):
        write_manifest_list(io, str(tmp_path / "l"), [], 1, None, 0, 1)


class TestDamage:
    @pytest.fixture
    def manifest(self, io: LocalFileIO, tmp_path: Path) -> ManifestFile:
        entries = [added(FULL, file_path=f"/t/data/{at}.parquet") for at in range(600)]
        return listed(write(io, tmp_path / "m.avro", entries))

    def test_every_truncation_is_noticed(
        self, io: LocalFileIO, tmp_path: Path, manifest: ManifestFile
    ) -> None:
        data = (tmp_path / "m.avro").read_bytes()
        for length in {0, 1, 3, 4, 20, 500, len(data) // 2, len(data) - 17, len(data) - 1}:
            (tmp_path / "m.avro").write_bytes(data[:length])
            for size in (manifest.manifest_length, 0):
                with pytest.raises(DataInvalidError, match=r"m\.avro"):
                    read_manifest(io, replace(manifest, manifest_length=size), {0: SPEC})

    def test_truncation_between_blocks_is_noticed_by_the_counts(
        self, io: LocalFileIO, tmp_path: Path, manifest: ManifestFile
    ) -> None:
        data = (tmp_path / "m.avro").read_bytes()
        sync = data[-16:]
        cut = data[: data.rindex(sync, 0, -16) + 16]
        (tmp_path / "m.avro").write_bytes(cut)
        with pytest.raises(DataInvalidError, match=r"it holds \d+ entries, its manifest list counts 600"):
            read_manifest(io, replace(manifest, manifest_length=0), {0: SPEC})

    def test_flipped_bytes_never_raise_anything_else(
        self, io: LocalFileIO, tmp_path: Path, manifest: ManifestFile
    ) -> None:
        data = (tmp_path / "m.avro").read_bytes()
        noticed = 0
        for at in range(0, len(data), max(1, len(data) // 150)):
            flipped = bytearray(data)
            flipped[at] ^= 0xFF
            (tmp_path / "m.avro").write_bytes(bytes(flipped))
            try:
                read_manifest(io, manifest, {0: SPEC})
            except (DataInvalidError, FeatureUnsupportedError) as error:
                noticed += "m.avro" in str(error)
        assert noticed > 50

    def test_other_files(self, io: LocalFileIO, tmp_path: Path, manifest: ManifestFile) -> None:
        for content in (
            b"",
            b"not avro at all, but long enough to have a header",
            b"Obj\x01" + b"\xff" * 100,
        ):
            (tmp_path / "m.avro").write_bytes(content)
            with pytest.raises(DataInvalidError, match=r"m\.avro"):
                read_manifest(io, replace(manifest, manifest_length=0), {0: SPEC})
            with pytest.raises(DataInvalidError, match=r"m\.avro"):
                read_manifest_list(io, str(tmp_path / "m.avro"))

    def test_a_manifest_where_a_list_should_be(self, io: LocalFileIO, manifest: ManifestFile) -> None:
        with pytest.raises(DataInvalidError, match=r"m\.avro"):
            read_manifest_list(io, manifest.manifest_path)

    def test_missing(self, io: LocalFileIO, tmp_path: Path, manifest: ManifestFile) -> None:
        (tmp_path / "m.avro").unlink()
        with pytest.raises(MissingFileError, match=r"m\.avro"):
            read_manifest(io, manifest, {0: SPEC})
        with pytest.raises(MissingFileError, match="none"):
            read_manifest_list(io, str(tmp_path / "none"))

    def test_unknown_spec(self, io: LocalFileIO, manifest: ManifestFile) -> None:
        with pytest.raises(DataInvalidError, match="partition spec 0"):
            read_manifest(io, manifest, {1: SPEC})


class TestManifestList:
    def test_round_trip_keeps_existing_and_completes_new(self, io: LocalFileIO, tmp_path: Path) -> None:
        new = write(io, tmp_path / "m", [added(FULL)], snapshot_id=None)
        old = replace(
            new, manifest_path="/old", sequence_number=2, min_sequence_number=1, added_snapshot_id=5
        )
        bare = replace(
            old, manifest_path="/bare", partitions=None, key_metadata=b"k", content=ManifestContent.DELETES
        )
        path = str(tmp_path / "l.avro")
        assert write_manifest_list(io, path, [new, old, bare], 88, None, 7, 2) is None
        first, *rest = read_manifest_list(io, path)
        assert first == replace(new, sequence_number=7, min_sequence_number=7, added_snapshot_id=88)
        assert rest == [old, bare]
        metadata, _ = avro(tmp_path / "l.avro")
        assert {key: metadata[key] for key in metadata if "avro" not in key} == {
            "snapshot-id": "88",
            "parent-snapshot-id": "null",
            "sequence-number": "7",
            "format-version": "2",
        }

    def test_an_empty_list(self, io: LocalFileIO, tmp_path: Path) -> None:
        path = str(tmp_path / "l.avro")
        write_manifest_list(io, path, [], 1, 2, 3, 2)
        assert read_manifest_list(io, path) == []

    def test_first_row_ids_of_the_specification(self, io: LocalFileIO, tmp_path: Path) -> None:
        base = replace(
            write(io, tmp_path / "m", [added(plain("/a"))], spec=UNPARTITIONED, version=3),
            sequence_number=None,
        )

        def manifest(
            name: str, added_rows: int, existing_rows: int, first: int | None = None
        ) -> ManifestFile:
            return replace(
                base,
                manifest_path=name,
                added_rows_count=added_rows,
                existing_rows_count=existing_rows,
                first_row_id=first,
            )

        deletes = replace(manifest("deletes", 1000, 0), content=ManifestContent.DELETES)
        manifests = [
            manifest("existing", 75, 0, 925),
            manifest("added1", 100, 25),
            deletes,
            manifest("added2", 0, 100),
            manifest("added3", 125, 25),
        ]
        path = str(tmp_path / "l.avro")
        assert write_manifest_list(io, path, manifests, 77, 76, 4, 3, 1000) == 1375
        read = {m.manifest_path: m.first_row_id for m in read_manifest_list(io, path)}
        assert read == {"existing": 925, "added1": 1000, "deletes": None, "added2": 1125, "added3": 1225}
        assert avro(tmp_path / "l.avro")[0]["first-row-id"] == "1000"
        with pytest.raises(DataInvalidError, match="next row id"):
            write_manifest_list(io, path, manifests, 77, 76, 4, 3)

    def test_counts_that_an_old_list_lacks_are_made_up_for(self, io: LocalFileIO, tmp_path: Path) -> None:
        entries = [
            added(plain("/a", rows=3)),
            ManifestEntry(EntryStatus.EXISTING, 5, 0, 0, plain("/b", rows=4)),
        ]
        manifest = listed(write(io, tmp_path / "m", entries, spec=UNPARTITIONED))
        unknown = replace(manifest, added_files_count=None, existing_rows_count=None)
        path = str(tmp_path / "l.avro")
        write_manifest_list(io, path, [unknown], 88, None, 7, 2)
        assert read_manifest_list(io, path) == [manifest]


ENTRY_V1: dict[str, Any] = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int", "field-id": 0},
        {"name": "snapshot_id", "type": "long", "field-id": 1},
        {
            "name": "data_file",
            "field-id": 2,
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [
                    {"name": "file_path", "type": "string", "field-id": 100},
                    {"name": "file_format", "type": "string", "field-id": 101},
                    {
                        "name": "partition",
                        "field-id": 102,
                        "type": {
                            "type": "record",
                            "name": "r102",
                            "fields": [
                                {
                                    "name": "id_bucket",
                                    "type": ["null", "int"],
                                    "default": None,
                                    "field-id": 1000,
                                },
                                {
                                    "name": "d",
                                    "type": ["null", {"type": "int", "logicalType": "date"}],
                                    "default": None,
                                    "field-id": 1001,
                                },
                            ],
                        },
                    },
                    {"name": "record_count", "type": "long", "field-id": 103},
                    {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
                    {"name": "block_size_in_bytes", "type": "long", "field-id": 105},
                ],
            },
        },
    ],
}
LIST_V1: dict[str, Any] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "added_snapshot_id", "type": ["null", "long"], "default": None, "field-id": 503},
        {"name": "added_data_files_count", "type": ["null", "int"], "default": None, "field-id": 504},
    ],
}


def write_avro(path: Path, schema: dict[str, Any], record: dict[str, Any], codec: str) -> None:
    with path.open("wb") as stream:
        fastavro.writer(stream, schema, [record], codec=codec)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_version_1_is_read(io: LocalFileIO, tmp_path: Path, codec: str) -> None:
    schema = parse_ddl("id long, d date")
    spec = parse_partition_by(["bucket(4, id)", "d"], schema)
    record = {
        "status": 1,
        "snapshot_id": 42,
        "data_file": {
            "file_path": "/f",
            "file_format": "PARQUET",
            "partition": {"id_bucket": 2, "d": -1},
            "record_count": 8,
            "file_size_in_bytes": 9,
            "block_size_in_bytes": 64,
        },
    }
    path = tmp_path / "m.avro"
    write_avro(path, ENTRY_V1, record, codec)
    listing = tmp_path / "l.avro"
    row = {
        "manifest_path": str(path),
        "manifest_length": path.stat().st_size,
        "partition_spec_id": 0,
        "added_snapshot_id": 42,
        "added_data_files_count": 1,
    }
    write_avro(listing, LIST_V1, row, codec)
    (manifest,) = read_manifest_list(io, str(listing))
    assert (manifest.content, manifest.sequence_number, manifest.added_files_count) == (
        ManifestContent.DATA,
        0,
        1,
    )
    assert (manifest.existing_files_count, manifest.partitions) == (None, None)
    (entry,) = read_manifest(io, manifest, {0: spec})
    assert (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) == (42, 0, 0)
    assert entry.data_file == DataFile(FileContent.DATA, "/f", "parquet", 0, (2, -1), 8, 9)
    snapshot = Snapshot(42, None, 0, 0, None, manifests=(str(path),))
    (embedded,) = snapshot_manifests(io, snapshot)
    assert (embedded.manifest_path, embedded.added_snapshot_id) == (str(path), 42)
    assert snapshot_manifests(io, replace(snapshot, manifest_list=str(listing))) == [manifest]


def test_an_unknown_codec_is_named(io: LocalFileIO, tmp_path: Path) -> None:
    manifest = listed(write(io, tmp_path / "m", [added(plain("/a"))], spec=UNPARTITIONED))
    data = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(data.replace(b"deflate", b"brotli!"))
    with pytest.raises(FeatureUnsupportedError, match="brotli!"):
        read_manifest(io, manifest, {0: UNPARTITIONED})


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("gzip", "deflate"), ("zstd", "zstandard"), ("snappy", "snappy"), ("uncompressed", "null")],
)
def test_the_codec_is_the_tables_choice(io: LocalFileIO, tmp_path: Path, codec: str, stored: str) -> None:
    compression = AvroCompression(codec)
    entries = [added(plain(f"/t/data/{at}")) for at in range(3)]
    manifest = write_manifest(
        io, str(tmp_path / "m"), entries, UNPARTITIONED, SCHEMA, 2, ManifestContent.DATA, 77, compression
    )
    path = str(tmp_path / "l")
    write_manifest_list(io, path, [manifest], 77, None, 9, 2, compression=compression)
    assert avro(tmp_path / "m")[0]["avro.codec"] == avro(tmp_path / "l")[0]["avro.codec"] == stored
    (found,) = read_manifest_list(io, path)
    assert [entry.data_file for entry in read_manifest(io, found, {0: UNPARTITIONED})] == [
        entry.data_file for entry in entries
    ]


class TestCompressionProperties:
    def test_defaults_and_values(self) -> None:
        parse = AvroCompression.from_properties
        assert parse({}, "write.manifest") == AvroCompression("gzip", None)
        properties = {
            "write.manifest.compression-codec": "ZSTD",
            "write.manifest.compression-level": "19",
            "write.avro.compression-codec": "snappy",
            "write.avro.compression-level": "99",
        }
        assert parse(properties, "write.manifest") == AvroCompression("zstd", 19)
        assert parse(properties, "write.avro") == AvroCompression("snappy", None)
        assert parse({"write.manifest.compression-level": "null"}, "write.manifest").level is None

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("codec", "lzo", "use one of gzip, zstd, snappy, uncompressed"),
            ("level", "10", "above 9"),
            ("level", "-2", "below -1"),
            ("level", "high", "not an integer"),
        ],
    )
    def test_nonsense(self, name: str, value: str, message: str) -> None:
        with pytest.raises(InvalidOptionError, match=message):
            AvroCompression.from_properties({f"write.manifest.compression-{name}": value}, "write.manifest")


class TestPyIceberg:
    """The same files through PyIceberg's Avro code, in both directions."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_it_reads_ours(self, io: LocalFileIO, tmp_path: Path, version: int) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.manifest import read_manifest_list as theirs

        manifest = write(
            io, tmp_path / "m.avro", [added(FULL), added(FULL, partition=NULLS)], version=version
        )
        path = str(tmp_path / "l.avro")
        write_manifest_list(io, path, [manifest], 77, None, 9, version, 0 if version == 3 else None)
        files = PyArrowFileIO()
        (listed_manifest,) = theirs(files.new_input(path))
        assert (listed_manifest.sequence_number, listed_manifest.added_snapshot_id) == (9, 77)
        assert listed_manifest.added_rows_count == 200
        (ours,) = read_manifest_list(io, path)
        for summary, mine in zip(listed_manifest.partitions or [], ours.partitions or (), strict=True):
            assert (summary.contains_null, summary.contains_nan) == (mine.contains_null, mine.contains_nan)
            assert (summary.lower_bound, summary.upper_bound) == (mine.lower_bound, mine.upper_bound)
        full, nulls = listed_manifest.fetch_manifest_entry(files)
        assert (full.snapshot_id, full.sequence_number) == (77, 9)
        assert tuple(full.data_file.partition) == PARTITION
        assert tuple(nulls.data_file.partition) == NULLS
        assert dict(full.data_file.upper_bounds) == FULL.upper_bounds
        assert dict(full.data_file.column_sizes) == FULL.column_sizes
        assert list(full.data_file.split_offsets) == [4, 1000]

    def test_we_read_its(self, io: LocalFileIO, tmp_path: Path) -> None:
        import pyiceberg.manifest as theirs
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.partitioning import PartitionSpec as TheirSpec
        from pyiceberg.schema import Schema as TheirSchema
        from pyiceberg.typedef import Record

        from streamlake.spec.partitioning.partition_spec import spec_to_json
        from streamlake.spec.types.type_json import schema_to_json

        schema = TheirSchema.model_validate(schema_to_json(SCHEMA))
        spec = TheirSpec.model_validate(spec_to_json(SPEC))
        files = PyArrowFileIO()
        path = str(tmp_path / "m.avro")
        data_file = theirs.DataFile.from_args(
            content=theirs.DataFileContent.DATA,
            file_path=FULL.file_path,
            file_format=theirs.FileFormat.PARQUET,
            partition=Record(*PARTITION),
            record_count=FULL.record_count,
            file_size_in_bytes=FULL.file_size_in_bytes,
            column_sizes=FULL.column_sizes,
            value_counts=FULL.value_counts,
            null_value_counts=FULL.null_value_counts,
            nan_value_counts=FULL.nan_value_counts,
            lower_bounds=FULL.lower_bounds,
            upper_bounds=FULL.upper_bounds,
            key_metadata=FULL.key_metadata,
            split_offsets=[4, 1000],
            sort_order_id=0,
        )
        with theirs.write_manifest(2, spec, schema, files.new_output(path), 77, "deflate") as writer:
            entry = theirs.ManifestEntry.from_args(
                status=theirs.ManifestEntryStatus.ADDED, snapshot_id=77, data_file=data_file
            )
            writer.add(entry)
        written = writer.to_manifest_file()
        listing = str(tmp_path / "l.avro")
        with theirs.write_manifest_list(
            2, files.new_output(listing), 77, None, 9, "deflate"
        ) as listing_writer:
            listing_writer.add_manifests([written])
        (manifest,) = read_manifest_list(io, listing)
        assert (manifest.sequence_number, manifest.added_snapshot_id, manifest.added_rows_count) == (
            9,
            77,
            100,
        )
        (ours,) = read_manifest(io, manifest, {0: SPEC})
        assert ours.data_file == FULL
        assert (ours.status, ours.sequence_number) == (EntryStatus.ADDED, 9)
