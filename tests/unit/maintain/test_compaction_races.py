"""Compaction beside a stream of upserts: the oracle's rows and their lineage, whoever commits first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import Compaction, rewrite_data_files
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.records import ROW_KIND, RowKind
from streamlake.table.producers.rewrite_files import RewriteFiles
from streamlake.table.table import Table
from streamlake.tables import load_table
from tests.helpers.delete_history import CATEGORY, NUMBER, TYPES, History
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

KEYS = 40
MODES = [
    (2, "position"),
    (3, "position"),
    (2, "equality"),
    (3, "equality"),
    (2, "copy-on-write"),
    (3, "copy-on-write"),
]
SETTINGS = [
    CompactSettings(options={"rewrite-all": "true"}),
    CompactSettings("sort", ("v desc",), options={"rewrite-all": "true"}),
    CompactSettings(options={"min-input-files": "2", "delete-ratio-threshold": "0.1"}),
    CompactSettings(
        options={"rewrite-all": "true", "max-file-group-input-files": "2", "partial-progress.enabled": "true"}
    ),
]


class Race:
    """A stream of upserts, and the rows that it has written, by key."""

    def __init__(
        self, location: Path, version: int, mode: str, seed: int, partition_by: tuple[str, ...]
    ) -> None:
        self.chance = random.Random(seed)
        self.by_bucket = bool(partition_by)
        make_table(location, "id long not null, v long", partition_by, version)
        self.location = str(location)
        self.stream = LocalUpserts(self.location, key=["id"], delete_mode=mode)
        self.rows: dict[int, int] = {}
        self.number = 0

    def changes(self) -> pa.Table:
        some = self.chance.sample(range(KEYS), self.chance.randrange(1, 12))
        values, kinds = [], []
        for key in some:
            self.number += 1
            values.append(self.number)
            if self.chance.random() < 0.25:
                self.rows.pop(key, None)
                kinds.append(RowKind.DELETE)
            else:
                self.rows[key] = self.number
                kinds.append(RowKind.UPDATE_AFTER)
        return pa.table(
            {
                "id": pa.array(some, pa.int64()),
                "v": pa.array(values, pa.int64()),
                ROW_KIND: pa.array(kinds, pa.int8()),
            }
        )

    def compact(self, during: int = 0) -> Compaction:
        """Compact; `during` checkpoints are committed after the rewrite and before its commit."""
        table = load_table(self.location).table

        def before_commit(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
            nonlocal during
            for _ in range(during):
                self.stream.checkpoint(self.changes())
            during = 0

        return rewrite_data_files(table, self.chance.choice(SETTINGS), before_commit=before_commit)

    def lineage(self, table: Table) -> dict[int, tuple[int, int]]:
        columns = ["id", "_row_id", "_last_updated_sequence_number"]
        found = load_table(table.location).scan(columns=columns).to_arrow().to_pylist()
        return {row["id"]: (row[columns[1]], row[columns[2]]) for row in found}

    def check(self) -> None:
        loaded = load_table(self.location)
        found = loaded.scan().to_arrow()
        pairs = sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
        assert pairs == sorted(self.rows.items())


@pytest.mark.parametrize(("version", "mode"), MODES)
@pytest.mark.parametrize("partition_by", [(), ("bucket(3, id)",)], ids=["whole", "by bucket"])
def test_beside_upserts(tmp_path: Path, version: int, mode: str, partition_by: tuple[str, ...]) -> None:
    race = Race(tmp_path / "t", version, mode, seed=len(mode) + version, partition_by=partition_by)
    compactions = given_up = groups = carried = 0
    for _ in range(10):
        before = race.lineage(race.stream.table) if version >= 3 else {}
        known = dict(race.rows)
        step = race.chance.choice(["checkpoint", "between", "during", "during", "alone"])
        if step == "checkpoint":
            race.stream.checkpoint(race.changes())
        elif step == "between":
            race.stream.checkpoint(race.changes(), between=lambda _: race.compact())
        else:
            done = race.compact(race.chance.randrange(1, 3) if step == "during" else 0)
            compactions += bool(done.groups)
            groups += len(done.groups)
            given_up += done.given_up
            carried += done.carried_rows
        race.check()
        if version >= 3:
            after = race.lineage(race.stream.table)
            same = [key for key, value in race.rows.items() if known.get(key) == value]
            assert {key: after[key] for key in same} == {key: before[key] for key in same}
            assert len({row_id for row_id, _ in after.values()}) == len(after)
    check_table(load_table(race.location).table, files_exist=True)
    assert compactions
    # Copy-on-write replaces most of so few files with every checkpoint.
    assert given_up <= (groups if mode == "copy-on-write" else groups // 3), f"of {groups} groups"
    if mode == "position":
        assert carried


@pytest.mark.parametrize(
    ("version", "mode"), [(2, "position"), (3, "position"), (2, "equality"), (3, "copy-on-write")]
)
def test_against_a_stream_at_full_speed(tmp_path: Path, version: int, mode: str) -> None:
    """Neither waits for the other: no checkpoint fails, and no compaction loses its work but to copy-on-write."""
    race = Race(tmp_path / "t", version, mode, seed=7, partition_by=())
    for _ in range(3):
        race.stream.checkpoint(race.changes())
    ended, checkpoints, errors = Event(), 0, []

    def stream() -> None:
        nonlocal checkpoints
        try:
            while not ended.is_set():
                race.stream.checkpoint(race.changes())
                checkpoints += 1
        except Exception as error:
            errors.append(error)

    thread = Thread(target=stream)
    thread.start()
    committed = given_up = 0
    try:
        while committed + given_up < 6 and not errors:
            done = rewrite_data_files(load_table(race.location).table, SETTINGS[2])
            committed += bool(done.snapshots)
            given_up += done.given_up
    finally:
        ended.set()
        thread.join()
    assert errors == []
    assert checkpoints > 2
    race.check()
    check_table(load_table(race.location).table, files_exist=True)
    assert committed > (0 if mode == "copy-on-write" else 4)


@pytest.mark.parametrize("version", [2, 3])
def test_after_every_kind_of_delete(tmp_path_factory: pytest.TempPathFactory, version: int) -> None:
    """Schemas and specs of old files, all formats, deletes of every kind before the compaction and during it."""
    seen = {"carried": 0, "given_up": 0, "committed": 0}

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data(), st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    def check(data: Any, types: list[str]) -> None:
        location = tmp_path_factory.mktemp("history") / "t"
        history = History(str(location), data.draw, version, types, nested_keys=False)
        for _ in range(3):
            history.checkpoint()
            if data.draw(st.booleans()):
                history.evolve()
        during = data.draw(st.integers(0, 2))
        columns = ["n", "_row_id", "_last_updated_sequence_number"] if version == 3 else ["n"]

        def rows() -> list[dict[str, Any]]:
            found = load_table(str(location)).scan(columns=columns).to_arrow().to_pylist()
            return sorted(found, key=lambda row: row["n"])

        expected = rows()

        def before_commit(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
            nonlocal during, expected
            for _ in range(during):
                history.checkpoint()
            during, expected = 0, rows()

        strategy = data.draw(
            st.sampled_from([("binpack", ()), ("sort", ("n desc",)), ("sort", ("category",))])
        )
        options = {"rewrite-all": "true", "output-spec-id": data.draw(st.sampled_from([0, 1]))}
        options["use-starting-sequence-number"] = data.draw(st.sampled_from(["true", "true", "false"]))
        table = load_table(str(location)).table
        done = rewrite_data_files(
            table, CompactSettings(*strategy, options=options), before_commit=before_commit
        )
        seen["carried"] += bool(done.carried_rows)
        seen["given_up"] += bool(done.given_up)
        seen["committed"] += bool(done.snapshots)
        assert [row["n"] for row in rows()] == sorted(row[NUMBER] for row in history.model.live())
        assert rows() == expected
        pairs = load_table(str(location)).scan(columns=["n", "category"]).to_arrow().to_pylist()
        live = {row[NUMBER]: row[CATEGORY] for row in history.model.live()}
        assert {row["n"]: row["category"] for row in pairs} == live
        check_table(table, files_exist=True)

    check()
    assert all(seen.values()), seen
