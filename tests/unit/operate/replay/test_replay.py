"""Replaying rejects: good ones go into the table once, whatever the replay dies of; bad ones stay with today's error."""

from __future__ import annotations

import itertools
import json
from typing import cast

import pyarrow as pa
import pytest
from kafka.record.default_records import DefaultRecordBatch

from streamlake import failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.decode.rejected_records import RejectStamp
from streamlake.errors import CommitConflictError, InvalidOptionError, StreamlakeError
from streamlake.failpoints import REGISTERED, FailpointError
from streamlake.operate.replay.replay import ReplayedTable, replay
from streamlake.operate.replay.replay_plan import ReplayPlans
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects, rejects_name, require_rejects
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import keep_sources, sources_of
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.records import ROW_KIND, ROW_SEQUENCE
from streamlake.source import expansion
from streamlake.source.expansion import expanded_blocks
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.record_blocks import parse_blocks
from streamlake.tasks.direct_reader import row_decoder
from streamlake.tasks.record_screen import RecordScreen, reject_rules
from streamlake.tasks.row_names import RowRoute
from streamlake.write.task import write_rows
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table
from tests.unit.decode.raw_records import raw_batch
from tests.unit.source.test_expansion import batch_of

TOPIC = "orders"


def source(ddl="id long, v string", **arguments):
    return KafkaSource(**{"bootstrap_servers": "h:1", "topics": TOPIC, "schema": ddl, **arguments})


def reject(location, values, checkpoint_id=0, pipeline="p", first=100, topic=TOPIC):
    """Values that the stream `pipeline` rejects in a checkpoint of its own, as the direct path commits them."""
    table = open_table(str(location))
    rejects = require_rejects(str(location))
    run = SinkRun(
        rejects,
        cast(CheckpointTable, None),
        RunSettings(
            job_id=f"job-{pipeline}",
            run_id="run",
            branch="main",
            mode="append",
            max_continuous_empty_commits=1,
        ),
    )
    identity = CheckpointIdentity(
        pipeline, f"job-{pipeline}", checkpoint_id, end_offsets=(str(checkpoint_id),)
    )
    target = run.target(identity)
    stamp = RejectStamp(pipeline, checkpoint_id, 1_700_000_000_000_000 + checkpoint_id * 86_400_000_000)
    old = source("id int, v int")
    screen = RecordScreen(
        row_decoder(old), reject_rules(SinkRun.target(_run_of(table), identity), None, stamp)
    )
    decoded = screen.decode(raw_batch([{"value": value} for value in values], topic, first))
    assert len(decoded.rejects) == len(values)
    results = [write_rows(target, [screen.rejects_of(decoded)], 0, 0, 0)]
    committable = run.stage(identity, results)
    run.commit(committable, results)


def _run_of(table):
    return SinkRun(
        table,
        cast(CheckpointTable, None),
        RunSettings(
            job_id="x",
            run_id="run",
            branch="main",
            mode="append",
            max_continuous_empty_commits=1,
        ),
    )


def rows_of(location):
    found = load_table(str(location)).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def left(location):
    return load_table(rejects_name(str(location))).scan().to_arrow().sort_by("offset").to_pylist()


def record(id, v="a"):
    return json.dumps({"id": id, "v": v})


def given(location, **arguments):
    return ReplayedTable(**{"table": str(location), "source": source(), "pipeline": "p", **arguments})


def test_write_options_of_the_pipeline_count(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1)])
    replay(given(location, write_options={"write-format": "avro"}))
    assert rows_of(location) == [(1, "a")]
    assert [path.suffix for path in (location / "data").iterdir() if "crc" not in path.name] == [".avro"]


def test_after_a_fix_the_rejects_are_empty(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), record(2)])
    reject(location, [record(3)], checkpoint_id=1, first=102)
    found = replay(given(location))
    assert (found.records, found.rows, found.failed, found.left, found.recovered) == (3, 3, 0, 0, 0)
    assert rows_of(location) == [(1, "a"), (2, "a"), (3, "a")]
    assert left(location) == []
    check_table(open_table(str(location)), files_exist=True)
    check_table(open_rejects(str(location)), files_exist=True)
    again = replay(given(location))
    assert (again.records, again.snapshot_id) == (0, None)
    assert len(rows_of(location)) == 3


def test_what_fails_again_stays_with_the_error_of_today(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), '{"id": true}', "{", record(4)])
    before = left(location)
    found = replay(given(location))
    assert (found.records, found.failed, found.left) == (2, 2, 2)
    assert rows_of(location) == [(1, "a"), (4, "a")]
    after = left(location)
    assert [row["offset"] for row in after] == [101, 102]
    assert "'id' is long" in after[0]["error_message"]
    assert after[0]["error_message"] != before[1]["error_message"]
    same = ("key", "value", "headers", "timestamp", "pipeline", "checkpoint_id", "rejected_at")
    assert [[row[name] for name in same] for row in after] == [
        [row[name] for name in same] for row in before[1:3]
    ]
    assert sum(found.errors.values()) == 2
    snapshots = len(open_rejects(str(location)).snapshots)
    assert replay(given(location)).failed == 2
    assert len(open_rejects(str(location)).snapshots) == snapshots, "nothing is new, so nothing is committed"


def test_a_record_of_which_the_rejects_have_the_beginning_is_not_replayed(tmp_path, monkeypatch):
    """Whatever record.max-bytes and the format are by then: its bytes may look like a whole record."""
    monkeypatch.setattr(expansion, "BLOCK_BYTES", 1_000)
    values = [b"first", b"{" * 9_000, b"last"]
    batch = batch_of([(b"k", value) for value in values], DefaultRecordBatch.CODEC_GZIP)
    raw = pa.concat_batches([parse_blocks([block], TOPIC, 3) for block in expanded_blocks(batch, 2_000)])
    assert [len(value) for value in raw.column("value").to_pylist()] == [5, 2_001, 4]
    location = tmp_path / "t"
    make_table(location, "value binary")
    monkeypatch.setitem(reject.__globals__, "raw_batch", lambda *_: raw)
    reject(location, values)
    as_it_is = given(location, source=source(None, format="raw"))
    found = replay(as_it_is)
    assert (found.records, found.failed, found.left) == (2, 1, 1)
    (error,) = found.errors
    assert error.startswith("orders-3 offset 1: the rejects have only the beginning of this record")
    assert [(each["offset"], each["error_message"]) for each in left(location)] == [(1, error)]
    rows = load_table(str(location)).scan().to_arrow()
    assert sorted(rows["value"].to_pylist()) == [b"first", b"last"]
    again = replay(as_it_is)
    assert (again.records, again.failed, again.snapshot_id) == (0, 1, None)


def test_of_tables_that_rows_name_each_takes_its_own(tmp_path):
    location = tmp_path / "e_a"
    make_table(location, "id long, v string")
    reject(location, [record(1, "A"), record(2, "b"), record(3, "a")])
    found = replay(given(location, routes=(RowRoute(f"{tmp_path}/e_{{row.v}}"),)))
    assert (found.records, found.failed) == (2, 1)
    assert rows_of(location) == [(1, "A"), (3, "a")]
    [strange] = left(location)
    assert "its rows name another table" in strange["error_message"]
    default = tmp_path / "rest"
    make_table(default, "id long, v string")
    reject(default, [record(4, "//")])
    rest = given(default, routes=(RowRoute(f"{tmp_path}/e_{{row.v}}"),), keeps_unrouted=True)
    assert (replay(rest).records, rows_of(default)) == (1, [(4, "//")])


def test_records_that_had_no_table_go_to_those_that_they_name_now(tmp_path):
    a, b, unrouted = (tmp_path / f"e_{part}" for part in ("a", "b", "unrouted"))
    for location in (a, b, unrouted):
        make_table(location, "id long, v string")
    reject(unrouted, [record(1, "A"), record(2, "b"), record(3, "//"), "{", record(4, "c"), record(5, "a")])
    routes = (RowRoute(f"{tmp_path}/e_{{row.v}}"),)
    first, second = (given(each, routes=routes, rejects_of=str(unrouted)) for each in (a, b))
    found = replay(first)
    assert (found.records, found.failed, found.left) == (2, 1, 4)
    assert replay(second).records == 1
    assert (rows_of(a), rows_of(b)) == ([(1, "A"), (5, "a")], [(2, "b")])
    assert [row["offset"] for row in left(unrouted)] == [102, 103, 104]
    assert replay(first).records == 0


def test_a_row_that_moved_between_tables_is_not_brought_in_by_halves(tmp_path):
    """The stream takes it out of the one table and brings it into the other; a replay, which is for one, does neither."""

    def event(key, before, after):
        images = {"before": {"id": key, "v": before, "w": "x"}, "after": {"id": key, "v": after, "w": "y"}}
        return json.dumps(
            {"op": "u", "source": {"connector": "postgresql", "lsn": 10}, **images, "v": "no int"}
        )

    de, fr, nl, unrouted, default = (
        tmp_path / f"e_{part}" for part in ("de", "fr", "nl", "unrouted", "rest")
    )
    for location in (de, fr, nl, unrouted, default):
        make_table(location, "id long, v string, w string", format_version=3)
    old = LocalUpserts(str(de), key=["id"], sequence_by=[ROW_SEQUENCE])
    old.checkpoint(pa.table({"id": [1], "v": ["de"], ROW_SEQUENCE: [1]}))
    values = [event(1, "de", "fr"), event(2, "fr", "fr"), event(3, None, "fr"), event(4, None, "nl")]
    reject(unrouted, values[:3])
    reject(default, values[3:])
    keyed = {
        "source": source("id long, v string, w string", format="debezium-json"),
        "mode": "upsert",
        "key": ["id"],
        "routes": (RowRoute(f"{tmp_path}/e_{{row.v}}"),),
    }
    for location in (fr, de, fr):
        replay(given(location, rejects_of=str(unrouted), **keyed))
    assert (rows_of(de), rows_of(fr)) == ([(1, "de")], [(2, "fr"), (3, "fr")])
    [moved] = left(unrouted)
    assert (moved["offset"], "its rows name several tables" in moved["error_message"]) == (100, True)
    assert replay(given(nl, rejects_of=str(default), has_default=True, **keyed)).failed == 1


def test_a_filter_and_a_limit_choose(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(at) for at in range(5)])
    assert replay(given(location), where="offset >= 102").records == 3
    assert replay(given(location), limit=1).records == 1
    assert rows_of(location) == [(0, "a"), (2, "a"), (3, "a"), (4, "a")]
    assert [row["offset"] for row in left(location)] == [101]
    with pytest.raises(InvalidOptionError):
        replay(given(location), where="no such thing")


def test_rejects_of_others_are_left_alone(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1)])
    reject(location, [record(2)], pipeline="other")
    reject(location, [record(3)], checkpoint_id=1, topic="customers")
    found = replay(given(location))
    assert (found.records, found.left) == (1, 2)
    assert replay(given(location, pipeline=None, source=source(topics=None, topic_pattern=".*"))).left == 0
    assert rows_of(location) == [(1, "a"), (2, "a"), (3, "a")]


def change_of(table, id, v="a", op="c", lsn=5):
    row = {"id": id, "v": v}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    place = {"connector": "postgresql", "db": "shop", "table": table, "lsn": lsn}
    # Rejected as the source's columns were others.
    return json.dumps({**images, "op": op, "source": place, "v": "no int"})


@pytest.mark.parametrize("count", [1, 20])
def test_a_replay_binds_a_topic_as_its_first_rows_do(tmp_path, count):
    location = tmp_path / "t"
    make_table(location, "id long, v string not null")
    misfits = [change_of("products", at, None) for at in range(count)]
    reject(location, [*misfits, change_of("orders", 1), change_of("products", 2)])
    debezium = source("id long, v string", format="debezium-json")
    keyed = given(location, source=debezium, mode="upsert", key=["id"])
    found = replay(keyed)
    assert (found.records, found.failed) == (1, count + 1)
    assert rows_of(location) == [(1, "a")]
    assert sources_of(open_table(str(location))) == {TOPIC: "shop.orders"}
    assert "it is a change of the table 'shop.products'" in left(location)[-1]["error_message"]
    reject(location, [change_of("orders", 1, op="d", lsn=6)], checkpoint_id=1, first=200)
    assert (replay(keyed).records, rows_of(location)) == (1, [])


def test_a_replayed_delete_binds_its_topic(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    own = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    own.checkpoint(pa.table({"id": [1, 2], "v": ["a", "b"], ROW_SEQUENCE: [1, 1]}))
    reject(location, [change_of("orders", 1, op="d")])
    debezium = source(format="debezium-json")
    assert replay(given(location, source=debezium, mode="upsert", key=["id"])).records == 1
    assert (rows_of(location), sources_of(open_table(str(location)))) == ([(2, "b")], {TOPIC: "shop.orders"})


def test_a_replay_does_not_bring_a_second_source_to_a_truncated_one(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    own = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    keep_sources(own.table, {"others": "shop.others"})
    own.checkpoint(pa.table({"id": [1], "v": ["a"], ROW_SEQUENCE: [1001]}), truncates=[(1000, 0)])
    reject(location, [change_of("orders", 2)])
    debezium = source(format="debezium-json")
    with pytest.raises(InvalidOptionError, match=r"rows of shop\.others, which was truncated at 1000"):
        replay(given(location, source=debezium, mode="upsert", key=["id"]))
    assert (rows_of(location), len(left(location))) == ([(1, "a")], 1)


def test_without_rejects_there_is_nothing_to_replay(tmp_path):
    make_table(tmp_path / "t", "id long, v string")
    found = replay(given(tmp_path / "t"))
    assert (found.records, found.left) == (0, 0)
    assert "nothing was rejected" in found.notes[0]


def test_an_old_change_does_not_overwrite_a_newer_row(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string, at long", format_version=3)
    stream = LocalUpserts(str(location), key=["id"], sequence_by=["at"])
    stream.checkpoint(pa.table({"id": [1, 2], "v": ["new", "old"], "at": [10, 1]}))
    values = [json.dumps({"id": at, "v": "replayed", "at": 5}) for at in (1, 2, 3)]
    reject(location, values)
    upsert = given(
        location, source=source("id long, v string, at long"), mode="upsert", key=["id"], sequence_by=["at"]
    )
    assert replay(upsert).records == 3
    assert rows_of(location) == [(1, "new"), (2, "replayed"), (3, "replayed")]
    # The stream goes on with the index that the replay has left.
    stream.restart()
    stream.checkpoint_id = 1
    stream.checkpoint(pa.table({"id": [3, 2], "v": ["newer", "newer"], "at": [11, 11]}))
    assert rows_of(location) == [(1, "new"), (2, "newer"), (3, "newer")]
    check_table(open_table(str(location)), files_exist=True)


def test_a_snapshots_row_does_not_overwrite_what_was_streamed_since(tmp_path):
    """The stream and the replay of its rejects are ordered by the place in the log alike, without being told."""
    location = tmp_path / "t"
    make_table(location, "id long, v string", format_version=3)
    stream = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    rows = {"id": [1, 2, 3], "v": ["streamed", "gone", "streamed"], ROW_SEQUENCE: [90, 95, 120]}
    stream.checkpoint(pa.table({**rows, ROW_KIND: pa.array([0, 3, 0], pa.int8())}))

    def event(op, key, lsn):
        after = {"id": key, "v": "replayed"}
        source = {"connector": "postgresql", "lsn": lsn}
        return json.dumps({"op": op, "before": None, "after": after, "source": source, "v": "no int"})

    reject(location, [event("r", key, 100) for key in (1, 2, 4)] + [event("u", 3, 110), event("u", 1, 91)])
    debezium = source(format="debezium-json")
    found = replay(given(location, source=debezium, mode="upsert", key=["id"]))
    assert (found.records, found.left) == (5, 0)
    [note] = found.notes
    assert note.startswith("2 replayed changes are older than what the table has")
    assert rows_of(location) == [(1, "replayed"), (3, "streamed"), (4, "replayed")]
    stream.restart()
    stream.checkpoint_id = 1
    receipt = stream.checkpoint(pa.table({"id": [1, 4], "v": ["late", "next"], ROW_SEQUENCE: [90, 99]}))
    assert receipt.counters["rows-indexed"] == 0, "the stream goes on with the replay's index"
    assert rows_of(location) == [(1, "replayed"), (3, "streamed"), (4, "next")]


def test_an_older_snapshots_row_does_not_overwrite_that_of_a_newer_snapshot(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string", format_version=3)
    stream = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    stream.checkpoint(pa.table({"id": [1, 2], "v": ["of 50", "of 5"], ROW_SEQUENCE: [~50, ~5]}))

    def event(key, lsn):
        source = {"connector": "postgresql", "lsn": lsn}
        after = {"id": key, "v": f"of {lsn}"}
        return json.dumps({"op": "r", "before": None, "after": after, "source": source, "v": "no int"})

    reject(location, [event(1, 10), event(2, 10)])
    found = replay(given(location, source=source(format="debezium-json"), mode="upsert", key=["id"]))
    assert (found.records, found.left) == (2, 0)
    assert found.notes[0].startswith("1 replayed changes are older")
    assert rows_of(location) == [(1, "of 50"), (2, "of 10")]


@pytest.mark.parametrize("compacted", [False, True])
def test_an_old_change_does_not_overwrite_a_row_that_others_have_put_elsewhere(compacted, tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string", format_version=3)
    stream = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    stream.checkpoint(pa.table({"id": [1, 3], "v": ["streamed", "streamed"], ROW_SEQUENCE: [190, 100]}))
    if compacted:
        foreign_writers.compact(str(location), lambda at: True)

    def event(key, lsn):
        after = {"id": key, "v": "replayed"}
        return json.dumps(
            {"op": "u", "after": after, "source": {"connector": "postgresql", "lsn": lsn}, "v": "no int"}
        )

    reject(location, [event(1, 91), event(3, 110)])
    replay(given(location, source=source(format="debezium-json"), mode="upsert", key=["id"]))
    assert rows_of(location) == [(1, "streamed"), (3, "replayed")]


def test_what_the_stream_commits_during_a_replay_stays(tmp_path, monkeypatch):
    """The stream commits newer changes between the replay's staging and its commit; another one sets what a record leaves out."""
    location = tmp_path / "t"
    make_table(location, "id long, v string", format_version=3)
    stream = LocalUpserts(str(location), key=["id"], sequence_by=[ROW_SEQUENCE])
    stream.checkpoint(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], ROW_SEQUENCE: [50, 50, 50]}))

    def event(key, lsn, value="replayed"):
        after = {"id": key, "v": value}
        source = {"connector": "postgresql", "lsn": lsn}
        return json.dumps({"op": "u", "before": None, "after": after, "source": source, "v": "no int"})

    reject(location, [event(1, 91), event(2, 92), event(3, 93, "__debezium_unavailable_value"), event(4, 94)])
    commit, raced = UpsertRun.commit, []

    def racing(run, *given, **more):
        if run is not stream.run and not raced:
            raced.append(True)
            rows = {"id": [1, 2, 3], "v": ["newer", None, "set meanwhile"], ROW_SEQUENCE: [300, 300, 60]}
            stream.checkpoint(pa.table({**rows, ROW_KIND: pa.array([2, 3, 2], pa.int8())}))
        return commit(run, *given, **more)

    monkeypatch.setattr(UpsertRun, "commit", racing)
    found = replay(given(location, source=source(format="debezium-json"), mode="upsert", key=["id"]))
    assert (raced, found.records, found.left) == ([True], 4, 0)
    assert rows_of(location) == [(1, "newer"), (3, "set meanwhile"), (4, "replayed")]
    check_table(open_table(str(location)), files_exist=True)


def test_changes_keep_their_order_and_deletes_delete(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string", format_version=3)
    changes = [("c", 1, "a"), ("u", 1, "b"), ("c", 2, "a"), ("d", 2, None), ("c", 3, "a")]
    reject(location, [json.dumps({"op": op, "id": at, "v": v or "x"}) for op, at, v in changes])
    upsert = given(
        location, source=source("op string, id long, v string"), mode="upsert", key=["id"], row_kind="op"
    )
    found = replay(upsert)
    assert rows_of(location) == [(1, "b"), (3, "a")]
    assert "sequence_by" in found.notes[0]


NOT_PASSED = {
    "offsets-planned", "offsets-logged", "splits-planned",
    "table-created", "checkpoint-noted", "commit-noted", "before-commit-note", "before-tasks", "before-result",
    "result-returned", "results-collected", "before-return", "before-recommit", "after-recommit", "before-indexing",
    "after-indexing", "before-resolution", "after-resolution", "index-files-pruned", "index-run-written",
    "index-state-stored", "file-rewritten", "files-rewritten", "delete-file-closed", "before-clean-up",
}  # fmt: skip


def test_a_replay_that_dies_anywhere_is_gone_on_with(tmp_path):
    met = set()
    for name, nth in itertools.product(sorted(set(REGISTERED) - NOT_PASSED), (1, 2, 3)):
        location = tmp_path / f"{name}-{nth}"
        make_table(location, "id long, v string")
        reject(location, [record(1), "{", record(3)])
        reject(location, [record(4)], checkpoint_id=1, first=103)
        failpoints.arm(f"{name}=raise,nth={nth}")
        for _ in range(4):
            try:
                replay(given(location))
                break
            except (FailpointError, StreamlakeError):
                met.add(name)
                failpoints.arm("")
                assert rows_of(location) in ([], [(1, "a"), (3, "a"), (4, "a")])
        else:
            raise AssertionError(name)
        failpoints.arm("")
        assert rows_of(location) == [(1, "a"), (3, "a"), (4, "a")], (name, nth)
        assert [row["offset"] for row in left(location)] == [101], (name, nth)
        assert replay(given(location)).records == 0
        assert rows_of(location) == [(1, "a"), (3, "a"), (4, "a")]
    assert {
        "committable-recorded",
        "after-swap",
        "before-swap",
        "data-file-closed",
        "committable-removed",
    } <= met


def test_a_replay_takes_over_what_another_one_is_about_to_commit(tmp_path, monkeypatch):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), record(2)])
    _between(monkeypatch, SinkRun, "commit", lambda: replay(given(location)))
    with pytest.raises(CommitConflictError, match="finished first"):
        replay(given(location))
    assert left(location) == []
    assert rows_of(location) == [(1, "a"), (2, "a")]


def test_of_two_replays_with_different_records_one_fails(tmp_path, monkeypatch):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), record(2)])
    _between(monkeypatch, ReplayPlans, "write", lambda: replay(given(location), limit=1))
    with pytest.raises(CommitConflictError, match="finished first"):
        replay(given(location))
    assert rows_of(location) == [(1, "a")]
    assert replay(given(location)).records == 1
    assert rows_of(location) == [(1, "a"), (2, "a")]
    assert left(location) == []


def test_a_staged_replay_whose_files_are_gone_is_done_again(tmp_path):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), record(2)])
    failpoints.arm("before-swap=raise")
    with pytest.raises(FailpointError):
        replay(given(location))
    failpoints.arm("")
    staged = list((location / "data").rglob("*.parquet"))
    assert staged
    for path in staged:
        path.unlink()
    found = replay(given(location))
    assert (found.recovered, found.records) == (0, 2)
    assert rows_of(location) == [(1, "a"), (2, "a")]
    assert left(location) == []


def test_a_replay_whose_plan_another_one_holds_does_nothing(tmp_path, monkeypatch):
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    reject(location, [record(1), record(2)])

    def dies():
        failpoints.arm("before-swap=raise")
        with pytest.raises(FailpointError):
            replay(given(location), limit=1)
        failpoints.arm("")

    _between(monkeypatch, ReplayPlans, "write", dies)
    with pytest.raises(CommitConflictError, match="another replay"):
        replay(given(location))
    assert rows_of(location) == []
    found = replay(given(location))
    assert (found.recovered, found.records) == (1, 1)
    assert rows_of(location) == [(1, "a"), (2, "a")]


def _between(monkeypatch, owner, name, step):
    """Do a step before the first call of a method."""
    method = getattr(owner, name)
    done = []

    def called(*arguments, **named):
        if not done:
            done.append(None)
            step()
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, called)
