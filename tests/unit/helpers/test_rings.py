from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.helpers import jars as parts
from tests.helpers import rings
from tests.helpers.jars import Artifact, Part, ivy_file, jars
from tests.helpers.rings import PartUnavailableError

NOWHERE = Part("nowhere-1", (Artifact("org.example", "nowhere", "1", transitive=False),), 2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMLAKE_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rings, "SKIPPED", {})
    monkeypatch.setattr(parts, "FETCH_PAUSES", (0.0, 0.0))
    return tmp_path / "cache"


def test_ring_without_its_part_is_skipped_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the kafka ring cannot run: no network"):
        rings.give_up("kafka", "no network")
    assert rings.SKIPPED == {"kafka": "no network"}


def test_ring_without_its_part_fails_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI allows no skipped ring"):
        rings.give_up("kafka", "no network")
    assert rings.SKIPPED == {}


def test_request_names_each_artifact() -> None:
    assert (
        '<dependency org="org.example" name="nowhere" rev="1" conf="default->default" transitive="false"/>'
        in (ivy_file(NOWHERE))
    )


def test_request_names_another_file_of_an_artifact() -> None:
    packed = Artifact("org.example", "nowhere", "1", False, "all", "tar.gz")
    assert (
        'transitive="false"><artifact name="nowhere" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>'
        in ivy_file(Part("nowhere-1", (packed,), 1, "*.tar.gz"))
    )


def test_fetched_part_appears_whole_and_is_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _ivy_brings(monkeypatch, ["a.jar", "b.jar"])
    assert [path.name for path in jars(NOWHERE)] == ["a.jar", "b.jar"]
    assert [path.name for path in jars(NOWHERE)] == ["a.jar", "b.jar"]
    assert len(calls) == 1
    assert sorted(path.name for path in cache.iterdir()) == ["nowhere-1", "nowhere-1.lock"]


def test_incomplete_fetch_says_so_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ivy_brings(monkeypatch, ["a.jar"])
    with pytest.raises(PartUnavailableError, match="brought 1 of 2 files: host unknown"):
        jars(NOWHERE)
    assert [path.name for path in cache.iterdir()] == ["nowhere-1.lock"]


def test_incomplete_cache_entry_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "nowhere-1").mkdir(parents=True)
    (cache / "nowhere-1" / "a.jar").touch()
    _ivy_brings(monkeypatch, ["a.jar", "b.jar"])
    assert len(jars(NOWHERE)) == 2


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.shutil, "which", lambda _: None)
    with pytest.raises(PartUnavailableError, match="install a JDK or JRE, version 17"):
        jars(NOWHERE)


def test_fetch_that_fails_for_a_moment_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _ivy_brings(monkeypatch, ["a.jar", "b.jar"], failures=2)
    assert len(jars(NOWHERE)) == 2
    assert len(calls) == 3


def _ivy_brings(monkeypatch: pytest.MonkeyPatch, names: list[str], failures: int = 0) -> list[list[str]]:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if len(calls) <= failures:
            return subprocess.CompletedProcess(command, 1, "registry is busy\n", "")
        target = Path(command[command.index("-retrieve") + 1]).parent
        target.mkdir()
        for name in names:
            (target / name).touch()
        return subprocess.CompletedProcess(command, 0, "host unknown\n", "")

    monkeypatch.setattr(parts.shutil, "which", lambda _: "/bin/java")
    monkeypatch.setattr(parts.subprocess, "run", run)
    return calls
