"""The durable form of a checkpoint: what is read back is what was staged, and damage is said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from streamlake.checkpoint.committable import Committable, committable_from_bytes, committable_to_bytes
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.staged_extra import Extra, StagedReplay, TableThen
from streamlake.checkpoint.store import CommittableStore
from streamlake.errors import DataInvalidError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import FieldSummary, ManifestContent, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.storage.file_io import file_io_for
from streamlake.storage.locations import TableLocations

STAGED = Path(__file__).with_name("staged")


def committable(checkpoint_id: int = 7) -> Committable:
    manifest = ManifestFile(
        manifest_path="/t/metadata/u-m0.avro",
        manifest_length=10,
        partition_spec_id=1,
        content=ManifestContent.DATA,
        sequence_number=None,
        min_sequence_number=None,
        added_snapshot_id=None,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=5,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=(FieldSummary(False, None, b"\x00\x01", b"\xff"), FieldSummary(True)),
    )
    return Committable(
        identity=CheckpointIdentity("p", "job", checkpoint_id, ('{"a": 1}',), ('{"a": 2}', "")),
        table_uuid="uuid",
        branch="main",
        mode="append",
        manifests=(manifest,),
        rows=5,
        data_files=1,
        bytes=100,
    )


def test_round_trip():
    assert committable_from_bytes(committable_to_bytes(committable()), "path") == committable()


def upserted() -> Committable:
    """A checkpoint that replaces files whose partitions have every type of value."""
    values = (None, True, -(2**60), float("inf"), -0.0, Decimal("-1.50"), UUID(int=7), b"\x00\xff", "ä\n", "")
    vector = DataFile(
        FileContent.POSITION_DELETES,
        "/t/data/d.puffin",
        "puffin",
        3,
        values,
        7,
        900,
        referenced_data_file="/t/data/f.parquet",
        content_offset=4,
        content_size_in_bytes=40,
    )
    return replace(
        committable(),
        mode="upsert",
        delete_files=2,
        removed=(vector, DataFile(FileContent.DATA, "/t/data/f.parquet", "parquet", 0, (), 10, 100)),
        base_snapshot_id=2**62,
        index_state="/t/metadata/_index/state.json",
        runs=("/t/metadata/_index/run-1", "/t/metadata/_index/run-2"),
        extra=Extra(counters={"late": 3}),
    )


def test_round_trip_of_an_upsert():
    restored = committable_from_bytes(committable_to_bytes(upserted()), "path")
    assert restored == upserted()
    assert [type(value) for value in restored.removed[0].partition] == [
        type(value) for value in upserted().removed[0].partition
    ]
    assert math.copysign(1, restored.removed[0].partition[4]) == -1


def test_statistics_of_replaced_files_are_not_kept():
    file = replace(upserted().removed[1], lower_bounds={1: b"x"}, value_counts={1: 5})
    restored = committable_from_bytes(committable_to_bytes(replace(upserted(), removed=(file,))), "path")
    assert restored.removed == (upserted().removed[1],)


def test_the_data_file_of_replaced_deletes_is_named_though_only_bounds_tell_it():
    path = {2147483546: b"/t/data/f.parquet"}
    deletes = replace(
        upserted().removed[0],
        file_format="parquet",
        referenced_data_file=None,
        content_offset=None,
        content_size_in_bytes=None,
        lower_bounds=path,
        upper_bounds=path,
    )
    restored = committable_from_bytes(committable_to_bytes(replace(upserted(), removed=(deletes,))), "path")
    assert [file.deletes_from for file in restored.removed] == ["/t/data/f.parquet"]


def test_a_partition_value_of_an_unknown_type_is_not_guessed_at():
    file = replace(upserted().removed[1], partition=(object(),))
    with pytest.raises(TypeError, match="object"):
        committable_to_bytes(replace(upserted(), removed=(file,)))


def test_what_needs_its_base():
    assert not committable().needs_its_base
    assert not replace(committable(), mode="upsert", delete_files=3).needs_its_base
    for change in ({"base_snapshot_id": 5}, {"index_state": "/s"}, {"removed": upserted().removed}):
        assert replace(committable(), **change).needs_its_base


def test_the_first_format_is_still_read():
    obj = json.loads(committable_to_bytes(committable()))
    for added in ("delete_files", "removed", "base_snapshot_id", "index_state", "runs", "extra"):
        del obj[added]
    data = json.dumps({**obj, "format": 1}).encode()
    assert committable_from_bytes(data, "path") == committable()


@pytest.mark.parametrize("name", ["append", "upsert", "replay"])
def test_what_the_version_before_has_staged_is_read_and_written_as_it_was(name: str):
    """The files are from before the values had types."""
    data = (STAGED / f"{name}.json").read_bytes()
    restored = committable_from_bytes(data, name)
    assert committable_to_bytes(restored) == data
    extra = restored.extra
    if name == "append":
        assert extra == Extra(table=TableThen(1, (PartitionSpec(0),)), follows=0)
    elif name == "replay":
        failed = {"t/0/2/5/2/p": ("DecodeError", "bad")}
        assert extra == Extra(replay=StagedReplay(("t/0/1/5/2/p",), failed))
    else:
        assert extra.index is not None
        assert extra.table is not None
        assert [ref.path for ref in extra.index.runs] == list(restored.runs)
        assert extra.counters["deleted-rows"] == 1
        assert [part.name for part in extra.table.specs[0].fields] == ["part"]
        assert (extra.index.took_moved, extra.truncated_below) == (False, None)


def test_values_that_earlier_and_later_versions_have():
    obj = json.loads((STAGED / "upsert.json").read_bytes())
    for added in ("truncated-below", "message-key", "took-moved", "specs"):
        del obj["extra"][added]
    obj["extra"]["to-come"] = {"kept": [1]}
    restored = committable_from_bytes(json.dumps(obj).encode(), "path")
    assert restored.extra.index is not None
    assert restored.extra.index.message_key == ""
    assert restored.extra.table == TableThen(1)
    assert json.loads(committable_to_bytes(restored))["extra"]["to-come"] == {"kept": [1]}


@pytest.mark.parametrize("extra", [{"index-runs": [{}]}, {"index-runs": []}, {"specs": [5]}, {"done": []}, 5])
def test_damage_in_values_names_the_file(extra: object):
    obj = {**json.loads(committable_to_bytes(upserted())), "extra": extra}
    with pytest.raises(DataInvalidError, match="/staged/9"):
        committable_from_bytes(json.dumps(obj).encode(), "/staged/9.json")


@pytest.mark.parametrize(
    "change",
    [
        {"removed": [{}]},
        {"removed": [{"content": 9, "partition": []}]},
        {"removed": [{"content": 0, "partition": [["complex", 1]]}]},
        {"removed": [{"content": 0, "partition": [["int"]]}]},
        {"removed": 5},
    ],
)
def test_damage_in_replaced_files_names_the_file(change):
    obj = {**json.loads(committable_to_bytes(upserted())), **change}
    with pytest.raises(DataInvalidError, match="/staged/8"):
        committable_from_bytes(json.dumps(obj).encode(), "/staged/8.json")


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-20], lambda d: b"", lambda d: b"[]", lambda d: d.replace(b"rows", b"rovs")]
)
def test_damage_names_the_file_and_the_way_out(damage):
    with pytest.raises(DataInvalidError, match=r"(?s)/staged/7\.json.*restart the job"):
        committable_from_bytes(damage(committable_to_bytes(committable())), "/staged/7.json")


def test_another_version_is_not_guessed_at():
    data = committable_to_bytes(committable()).replace(b'"format": 2', b'"format": 3')
    with pytest.raises(DataInvalidError, match="another version"):
        committable_from_bytes(data, "path")


def test_store_keeps_jobs_apart_and_orders_checkpoints(tmp_path: Path):
    io = file_io_for(str(tmp_path), {})
    locations = TableLocations(str(tmp_path), {})
    store, other = CommittableStore(io, locations, "job"), CommittableStore(io, locations, "other")
    for checkpoint_id in (10, 9, 100):
        store.record(committable(checkpoint_id))
    assert [found.identity.checkpoint_id for found in store.pending()] == [9, 10, 100]
    assert other.pending() == []
    store.remove(committable(9).identity)
    store.remove(committable(9).identity)
    assert [found.identity.checkpoint_id for found in store.pending()] == [10, 100]


def test_store_keeps_branches_apart(tmp_path: Path):
    io, locations = file_io_for(str(tmp_path), {}), TableLocations(str(tmp_path), {})
    stores = {
        branch: CommittableStore(io, locations, "job", branch) for branch in ("main", "audit", "a/b", "a%2Fb")
    }
    for branch, store in stores.items():
        store.record(replace(committable(7), branch=branch))
    for branch, store in stores.items():
        assert [found.branch for found in store.pending()] == [branch]
    stores["main"].remove(committable(7).identity)
    assert [len(store.pending()) for store in stores.values()] == [0, 1, 1, 1]


def test_digest_is_of_where_the_checkpoint_ends():
    one = CheckpointIdentity("p", "job", 1, ("0",), ("5",))
    assert one.offsets_digest == CheckpointIdentity("q", "job2", 1, ("3",), ("5",)).offsets_digest
    assert one.offsets_digest != CheckpointIdentity("p", "job", 1, ("0",), ("6",)).offsets_digest
