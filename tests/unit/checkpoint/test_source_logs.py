"""Offsets of file sources tell their files, whether Spark has compacted its log or not."""

from __future__ import annotations

import json
from pathlib import Path

from streamlake.checkpoint.source_logs import in_full, most_files, reader
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.storage.local import LocalFileIO


def entry(batch: int, name: str) -> str:
    return f'{{"path":"file:///in/{name}","timestamp":{1000 + batch},"batchId":{batch}}}'


def log(home: Path, name: str, *entries: str) -> None:
    path = home / "sources" / "0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *entries]))


def of(home: Path, number: int) -> dict[str, object]:
    [text] = in_full(reader(LocalFileIO()), str(home), [json.dumps({"logOffset": number})])
    found: dict[str, object] = json.loads(text)
    return found


def test_a_batch_is_told_by_its_files_and_not_by_their_order(tmp_path: Path) -> None:
    log(tmp_path, "0", entry(0, "a"), entry(0, "b"))
    first = of(tmp_path, 0)
    log(tmp_path, "0", entry(0, "b"), entry(0, "a"))
    assert of(tmp_path, 0) == first
    log(tmp_path, "0", entry(0, "a"))
    assert of(tmp_path, 0) != first
    assert first["logOffset"] == 0


def test_a_batch_is_the_same_when_it_was_compacted(tmp_path: Path) -> None:
    for number in range(9):
        log(tmp_path, str(number), entry(number, f"f{number}"))
    every = [entry(number, f"f{number}") for number in range(10)]
    log(tmp_path, "9.compact", *every)
    before = [of(tmp_path, number) for number in range(10)]
    assert len({str(found["files"]) for found in before}) == 10
    for number in range(9):
        (tmp_path / "sources" / "0" / str(number)).unlink()
    assert [of(tmp_path, number) for number in range(10)] == before
    (tmp_path / "sources" / "0" / "9.compact").unlink()
    log(tmp_path, "19.compact", *every, *(entry(number, f"f{number}") for number in range(10, 20)))
    assert [of(tmp_path, number) for number in range(10)] == before


def test_a_log_that_is_compacted_at_other_intervals(tmp_path: Path) -> None:
    for number in range(6):
        log(tmp_path, str(number), entry(number, f"f{number}"))
    log(tmp_path, "6.compact", *(entry(number, f"f{number}") for number in range(7)))
    before = [of(tmp_path, number) for number in range(7)]
    assert all("files" in found for found in before)
    for number in range(6):
        (tmp_path / "sources" / "0" / str(number)).unlink()
    assert [of(tmp_path, number) for number in range(7)] == before


def test_what_has_no_files_is_left_alone(tmp_path: Path) -> None:
    kafka = '{"orders": {"0": 12}}'
    counter = '{"logOffset": 3}'
    read = reader(LocalFileIO())
    texts = ["", kafka, counter, '{"logOffset": -1}', '{"logOffset": 3, "x": 1}', "logOffset"]
    assert in_full(read, str(tmp_path), texts) == tuple(texts)


def test_a_directory_tells_the_same(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"logOffset":0}\n-')
    log(tmp_path, "0", entry(0, "a"))
    directory = SparkDirectory(str(tmp_path))
    [files, nothing] = directory.end_offsets(0) or ()
    assert json.loads(files) == of(tmp_path, 0)
    assert nothing == ""
    assert directory.end_offsets(1) is None


def test_the_files_of_a_batch_are_counted(tmp_path: Path) -> None:
    log(tmp_path, "0", entry(0, "a"), entry(0, "b"))
    log(tmp_path, "1", entry(1, "c"))
    read = reader(LocalFileIO())
    batches = [json.dumps({"logOffset": number}) for number in range(3)]
    counts = [
        most_files(read, str(tmp_path), offsets)
        for offsets in (
            [batches[0]],
            in_full(read, str(tmp_path), [batches[0]]),
            [batches[1]],
            [batches[2]],
            ['{"t": {"0": 1}}'],
        )
    ]
    assert counts == [2, 2, 1, 0, 0]
