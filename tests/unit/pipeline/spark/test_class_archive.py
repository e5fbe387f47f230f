"""Where archives of classes are, how a JVM is told of them, and which are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamlake.pipeline.spark import class_archive
from streamlake.pipeline.spark.class_archive import ArchiveDraft, archive_path, mapping_options


def test_every_java_and_every_set_of_options_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = {
        archive_path(java, options) for java in ("17.0.15", "21.0.1") for options in ("", "-XX:+UseSerialGC")
    }
    assert len(paths) == 4
    assert {path.parent for path in paths} == {tmp_path / "streamlake"}
    assert archive_path("17.0.15", "") == archive_path("17.0.15", "")


def test_an_archive_gets_its_name_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my cache" / "classes-3.jsa"
    path.parent.mkdir()
    for number in (1, 2):
        old = path.with_name(f"classes-{number}.jsa")
        old.write_bytes(b"old")
        os.utime(old, (number, number))
    draft = ArchiveDraft(path)
    written = Path(draft.java_options.split('"')[1].partition("=")[2])
    assert written.parent == path.parent

    def end_jvm() -> None:
        assert not path.exists()
        written.write_bytes(b"classes")

    monkeypatch.setattr(class_archive, "_end_jvm", end_jvm)
    assert draft.keep() == 7
    assert sorted(each.name for each in path.parent.iterdir()) == ["classes-2.jsa", "classes-3.jsa"]
    assert mapping_options(path).startswith(f'"-XX:SharedArchiveFile={path}" -Xshare:auto')


def test_a_java_that_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_end_jvm", lambda: None)
    with pytest.raises(class_archive.StreamlakeError, match="this Java wrote no archive of classes"):
        ArchiveDraft(tmp_path / "classes-1.jsa").keep()
    assert not list(tmp_path.iterdir())
