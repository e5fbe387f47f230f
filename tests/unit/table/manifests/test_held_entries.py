"""Entries that are carried from manifest to manifest without being decoded: the same tables as by decoding all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pytest

from streamlake import ids
from streamlake.catalog.open import open_table
from streamlake.errors import ConflictValidationError, DataInvalidError
from streamlake.formats.avro import avro_container
from streamlake.formats.manifests import encoded_entries, manifests
from streamlake.formats.manifests.encoded_entries import EncodedEntry, EntryLayout, complete_file
from streamlake.formats.manifests.manifests import read_encoded, read_manifest, write_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.table.manifests import manifest_filter
from streamlake.table.manifests.held_entries import HeldEntries, LiveEntries
from streamlake.table.manifests.manifest_files import ManifestFiles
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import data_file, delete_file, make_table, stage

PARTITIONS = [(None, None), (1.5, Decimal("2.25")), (-0.0, Decimal("-1.00")), (float("nan"), Decimal("3.00"))]


class Decoding:
    """The slow way: every entry of a manifest that is touched is decoded, and encoded again."""

    @staticmethod
    def live(files: Any, manifest: ManifestFile) -> LiveEntries:
        entries = read_manifest(files._io, manifest, files._base.specs_by_id)
        files.entries_read += len(entries)
        live = [replace(entry, status=EntryStatus.EXISTING) for entry in entries if entry.is_live]
        return LiveEntries.of(live, manifest)  # type: ignore[arg-type]

    @staticmethod
    def carried(files: Any, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        own = files._own_entries.get(manifest.manifest_path)
        return Decoding.live(files, manifest).entries if own is None else own

    @staticmethod
    @contextmanager
    def everything() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ManifestFiles, "live", Decoding.live)
            patch.setattr(ManifestFiles, "carried", Decoding.carried)
            patch.setattr(manifest_filter, "complete_file", lambda entry: entry.data_file)
            yield


class Story:
    """Random commits to one table, the same for the same seed."""

    def __init__(self, location: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = make_table(
            location,
            "id int, kind float, price decimal(9,2)",
            ("kind", "price"),
            self.chance.choice([2, 2, 3]),
            {
                "commit.manifest.min-count-to-merge": self.chance.choice("238"),
                "commit.manifest.target-size-bytes": self.chance.choice(["9000", "8388608"]),
            },
        )
        self.names = 0

    def file(self) -> DataFile:
        self.names += 1
        low = self.chance.randrange(100)
        return data_file(
            self.table,
            *self.chance.choice(PARTITIONS),
            records=self.chance.randrange(1, 20),
            name=f"f{self.names}",
            bounds={"id": (low, low + 5)} if self.chance.random() < 0.8 else None,
        )

    def step(self) -> str:
        steps = [self.append, self.append, *[self.delta] * 5, self.overwrite, self.widen, self.upgrade]
        chosen = self.chance.choice(steps)
        try:
            chosen()
        except ConflictValidationError:
            return "refused"
        return chosen.__name__

    def append(self) -> None:
        append = AppendFiles(self.table)
        for _ in range(self.chance.randrange(1, 4)):
            append.append_file(self.file())
        append.commit()

    def delta(self) -> None:
        live = sorted(
            (entry.data_file for entry in live_entries(self.table)), key=lambda file: str(file.identity)
        )
        data = [file for file in live if file.is_data]
        delta = RowDelta(self.table)
        self.names += 1
        new = [self.file() for _ in range(self.chance.randrange(1, 5))]
        delta.append_manifest(stage(self.table, *new, uuid=f"data-{self.names}"))
        chosen = self.chance.sample(data, min(len(data), self.chance.randrange(4)))
        for at, file in enumerate(chosen):
            if at % 2:
                delta.remove_rows(file)
                continue
            self.names += 1
            deletes = delete_file(self.table, file, f"d{self.names}", offset=self.names)
            for older in live:
                if not older.is_data and older.deletes_from == file.file_path:
                    delta.remove_deletes(older)
            delta.add_deletes(deletes)
        delta.commit()

    def overwrite(self) -> None:
        column = self.chance.choice(["id < 40", "kind = 1.5", "kind is null"])
        OverwriteFiles(self.table).overwrite_by_filter(column).add_file(self.file()).commit()

    def widen(self) -> None:
        column, wider = self.chance.choice([("id", "long"), ("kind", "double"), ("price", "decimal(25,2)")])
        UpdateSchema(self.table).widen(column, wider).commit()

    def upgrade(self) -> None:
        UpdateProperties(self.table).upgrade_format_version(3).commit()

    def told(self) -> list[Any]:
        """The snapshot's summary, and its manifests with all their entries, without what differs from table to table."""
        snapshot = self.table.refresh().current_snapshot
        if snapshot is None:
            return []
        ordinals = {each.snapshot_id: at for at, each in enumerate(self.table.snapshots)}
        told: list[Any] = [sorted(snapshot.summary.items())]
        for manifest in self.table.manifests(snapshot):
            told.append(
                replace(
                    manifest,
                    manifest_path="",
                    manifest_length=0,
                    added_snapshot_id=ordinals[manifest.added_snapshot_id or 0],
                )
            )
            for entry in read_manifest(self.table.io, manifest, self.table.specs):
                told.append(replace(entry, snapshot_id=ordinals[entry.snapshot_id or 0]))
        return [repr(each).replace(self.table.location, "") for each in told]


def layout_of(table: Table, manifest: ManifestFile) -> EntryLayout:
    return EntryLayout.of(table.format_version, table.specs[manifest.partition_spec_id], table.schema)


def require_held_is_stored(table: Table) -> int:
    """Every held manifest of the head equals what is stored; the number of them."""
    held = 0
    for manifest in table.manifests(table.current_snapshot):
        layout = layout_of(table, manifest)
        live = table.held_entries.of(manifest, layout)
        if live is not None:
            held += 1
            stored = read_encoded(table.io, manifest, table.specs, layout)
            assert repr(live) == repr(LiveEntries.of(stored, manifest))
            complete = [complete_file(entry) for entry in stored]
            decoded = read_manifest(table.io, manifest, table.specs, live_only=True)
            assert repr(complete) == repr([entry.data_file for entry in decoded])
    return held


@contextmanager
def same_ids(seed: str) -> Iterator[None]:
    """Random ids that are the same for the same seed: which manifests are merged depends on their bytes."""
    chance = random.Random(seed)
    with (
        patch.object(ids, "new_uuid", lambda: str(UUID(int=chance.getrandbits(128)))),
        patch.object(ids, "new_snapshot_id", lambda: chance.getrandbits(63)),
    ):
        yield


@pytest.mark.parametrize("seed", range(12))
def test_carried_entries_make_the_table_that_decoded_ones_make(tmp_path: Path, seed: int) -> None:
    fast, slow = Story(tmp_path / "fast", seed), Story(tmp_path / "slow", seed)
    held = 0
    for number in range(25):
        with same_ids(f"{seed} {number}"):
            step = fast.step()
        with same_ids(f"{seed} {number}"), Decoding.everything():
            assert slow.step() == step
        assert fast.told() == slow.told()
        held += require_held_is_stored(fast.table)
    check_table(fast.table)
    check_table(open_table(slow.table.location))
    assert held


@pytest.mark.parametrize(("format_version", "mode"), [(2, "position"), (3, "position"), (3, "copy-on-write")])
def test_a_commit_decodes_its_own_files_and_encodes_none_again(
    tmp_path: Path, format_version: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path / "t", "id long, part int", ("part",), format_version)
    upserts = LocalUpserts(str(tmp_path / "t"), key=["id"], delete_mode=mode)
    work = {"decoded": 0, "encoded": 0}
    spent: list[dict[str, int]] = []

    def counted(module: Any, name: str, what: str, number: Any) -> None:
        original = getattr(module, name)

        def counting(*arguments: Any) -> Any:
            work[what] += number(*arguments)
            return original(*arguments)

        monkeypatch.setattr(module, name, counting)

    counted(avro_container, "_decoded", "decoded", lambda parsed, count, payload: count)
    counted(avro_container, "_split", "decoded", lambda head, rest, count, payload: count)
    counted(manifests, "entry_record", "encoded", lambda *arguments: 1)
    counted(encoded_entries, "file_record", "encoded", lambda *arguments: 1)

    def rows(keys: Sequence[int]) -> pa.Table:
        return pa.table(
            {"id": pa.array(keys, pa.int64()), "part": pa.array([key % 30 for key in keys], pa.int32())}
        )

    for start in range(0, 600, 120):
        upserts.checkpoint(rows(range(start, start + 120)))
    for round_ in range(14):
        staged = upserts.stage(rows([round_ % 3, round_ % 3 + 200, round_ % 3 + 400]))
        assert staged is not None
        before = dict(work)
        upserts.run.commit(*staged)
        upserts.run.forget_before(staged[0].identity)
        spent += [{what: work[what] - before[what] for what in work}]
    # Each of three keys may bring a data file, a rewritten one and a delete file: decoded once, by a later commit.
    assert all(each["encoded"] == 0 for each in spent)
    assert 30 <= sum(each["decoded"] for each in spent[4:]) <= 10 * 9
    total = int(upserts.table.current_snapshot.summary["total-data-files"])
    assert total > 250
    check_table(upserts.table)


def encoded(table: Table, path: str, *names: str) -> tuple[ManifestFile, list[EncodedEntry], EntryLayout]:
    entries = [
        ManifestEntry(EntryStatus.ADDED, 7, 1, 1, data_file(table, name=name, bounds={"id": (1, 2)}))
        for name in names
    ]
    manifest = write_manifest(table.io, path, entries, table.spec, table.schema, 3, ManifestContent.DATA, 7)
    manifest = replace(manifest, sequence_number=1, first_row_id=100)
    layout = layout_of(table, manifest)
    return manifest, read_encoded(table.io, manifest, table.specs, layout), layout


def test_the_least_recently_used_manifest_goes_first(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    made = [encoded(table, str(tmp_path / f"{name}.avro"), name, name * 2) for name in "abc"]
    sizes = [LiveEntries.of(entries, manifest).size_bytes for manifest, entries, _ in made]
    held = HeldEntries(sizes[0] + sizes[1])
    for manifest, entries, layout in made[:2]:
        held.hold(manifest, layout, LiveEntries.of(entries, manifest))
    assert held.of(made[0][0], made[0][2]) is not None
    held.hold(made[2][0], made[2][2], LiveEntries.of(made[2][1], made[2][0]))
    assert [held.of(manifest, layout) is not None for manifest, _, layout in made] == [True, False, True]
    HeldEntries(sizes[0] - 1).hold(made[0][0], made[0][2], LiveEntries.of(made[0][1], made[0][0]))


def test_other_ids_are_another_manifest(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    manifest, entries, layout = encoded(table, str(tmp_path / "m.avro"), "a", "b")
    assert [entry.data_file.first_row_id for entry in entries] == [100, 110]
    assert [complete_file(entry).first_row_id for entry in entries] == [100, 110]
    held = HeldEntries()
    held.hold(manifest, layout, LiveEntries.of(entries, manifest))
    assert held.of(replace(manifest, first_row_id=5), layout) is None
    assert held.of(manifest, replace(layout, format_version=2)) is None


def test_a_damaged_manifest_is_never_carried_over(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    path = tmp_path / "m.avro"
    manifest, entries, layout = encoded(table, str(path), "a", "b", "c")
    stored = path.read_bytes()
    chance = random.Random(1)
    for _ in range(200):
        damaged = bytearray(stored)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read_encoded(table.io, manifest, table.specs, layout)
        except DataInvalidError:
            continue
        assert len(found) == len(entries)
    path.write_bytes(stored[:-20])
    with pytest.raises(DataInvalidError, match="bytes of"):
        read_encoded(table.io, manifest, table.specs, layout)
