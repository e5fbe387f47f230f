"""Paths of a table: Hadoop layout, moved directories, object store layout."""

from __future__ import annotations

import os
import pickle

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.storage.locations import (
    TableLocations,
    data_file_name,
    hash_directories,
    metadata_version_of,
    table_location,
)

ROOT = "s3://bucket/warehouse/db/t"


def test_layout_of_hadoop_tables() -> None:
    at = TableLocations(ROOT + "/")
    assert at.data_file("", "f.parquet") == f"{ROOT}/data/f.parquet"
    assert at.data_file("ts_day=2024-01-01/id_bucket=3", "f.parquet") == (
        f"{ROOT}/data/ts_day=2024-01-01/id_bucket=3/f.parquet"
    )
    assert at.metadata_version(7) == f"{ROOT}/metadata/v7.metadata.json"
    assert at.metadata_version(7, gzip=True) == f"{ROOT}/metadata/v7.gz.metadata.json"
    assert at.version_hint() == f"{ROOT}/metadata/version-hint.text"
    assert at.manifest_list(12, 1, "u") == f"{ROOT}/metadata/snap-12-1-u.avro"
    assert at.manifest("u", 0) == f"{ROOT}/metadata/u-m0.avro"
    assert at.committable("job", 3) == f"{at.committables('job')}/checkpoint-0000000003.json"
    assert at.committables("job") == f"{ROOT}/metadata/streamlake/job"
    assert data_file_name(3, 14, "uuid", 2, "parquet") == "00003-14-uuid-00002.parquet"
    assert data_file_name(3, 14, "uuid", 2, "orc", deletes=True) == "00003-14-uuid-00002-deletes.orc"


def test_moved_directories() -> None:
    at = TableLocations("/t", {"write.data.path": "/fast/d/", "write.metadata.path": "file:/m"})
    assert at.data_file("p=1", "f") == "/fast/d/p=1/f"
    assert at.manifest("u", 1) == "file:/m/u-m1.avro"
    assert at.committables("j") == "file:/m/streamlake/j"
    assert at.metadata_version(1) == "/t/metadata/v1.metadata.json"
    assert at.version_hint() == "/t/metadata/version-hint.text"
    assert TableLocations("/t", {"write.data.path": "rows"}).data_file("", "f") == "/t/rows/f"


def test_object_store_layout_as_iceberg_lays_it_out() -> None:
    # Names and hashes of Iceberg's own TestLocationProvider.
    on = {"write.object-storage.enabled": "true"}
    assert hash_directories("a") == "0101/0110/1001/10110010"
    assert hash_directories("b") == "1110/0111/1110/00000011"
    assert hash_directories("c") == "0010/1101/0110/01011111"
    assert hash_directories("d") == "1001/0001/0100/01110011"
    at = TableLocations("/t", on)
    assert at.data_file("", "a") == "/t/data/0101/0110/1001/10110010/a"
    full = at.data_file("p=1", "f.parquet")
    assert full == f"/t/data/{hash_directories('p=1/f.parquet')}/p=1/f.parquet"
    flat = TableLocations("/t", {**on, "write.object-storage.partitioned-paths": "false"})
    assert flat.data_file("p=1", "a") == "/t/data/0101/0110/1001/10110010-a"


def test_object_store_layout_outside_the_table_names_the_table() -> None:
    properties = {"write.object-storage.enabled": "TRUE", "write.data.path": "s3://other/files"}
    at = TableLocations("s3://bucket/warehouse/db/t", properties)
    assert at.data_file("", "a") == "s3://other/files/0101/0110/1001/10110010/db/t/a"


@pytest.mark.parametrize("name", ["write.object-storage.path", "write.folder-storage.path"])
def test_removed_properties_are_errors(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"write\.data\.path"):
        TableLocations("/t", {name: "/x"}).data_file("", "f")


def test_a_java_location_provider_is_refused_for_data_only() -> None:
    at = TableLocations("/t", {"write.location-provider.impl": "com.example.Mine"})
    assert at.manifest("u", 0) == "/t/metadata/u-m0.avro"
    with pytest.raises(FeatureUnsupportedError, match=r"location-provider"):
        at.data_file("", "f")


def test_a_flag_that_is_no_flag() -> None:
    with pytest.raises(InvalidOptionError, match="true or false"):
        TableLocations("/t", {"write.object-storage.enabled": "yes"}).data_file("", "f")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/a/b/", "/a/b"),
        ("file:///a/b//", "file:///a/b"),
        ("s3://b/t", "s3://b/t"),
        ("rel/t", os.path.join(os.getcwd(), "rel/t")),
        ("./rel", os.path.join(os.getcwd(), "rel")),
    ],
)
def test_table_location(location: str, expected: str) -> None:
    assert table_location(location) == expected


@pytest.mark.parametrize("location", ["", "/", "//"])
def test_no_table_at_the_root(location: str) -> None:
    with pytest.raises(InvalidOptionError):
        table_location(location)


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/t/metadata/v12.metadata.json", 12),
        ("v1.gz.metadata.json", 1),
        ("/t/v3.metadata.json.gz", 3),
        ("/t/metadata/00001-abc.metadata.json", None),
        ("/t/metadata/.v1.metadata.json.0.tmp", None),
        ("/t/metadata/.v1.metadata.json.crc", None),
    ],
)
def test_version_of_a_metadata_path(path: str, version: int | None) -> None:
    assert metadata_version_of(path) == version


def test_locations_pickle() -> None:
    at = TableLocations("/t", {"write.data.path": "/d"})
    assert pickle.loads(pickle.dumps(at)).data_file("", "f") == "/d/f"
