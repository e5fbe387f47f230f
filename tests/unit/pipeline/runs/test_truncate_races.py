"""A truncate of one pipeline, and a second source that another one brings into the table meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import InvalidOptionError, StagedUnfitError
from streamlake.pipeline.runs import source_notes
from streamlake.pipeline.runs.source_notes import keep_sources, sources_of
from streamlake.records import ROW_SEQUENCE
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


def rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, places = zip(*pairs, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), ROW_SEQUENCE: pa.array(places, pa.int64())})


def upserts_of(home: Path) -> LocalUpserts:
    make_table(home / "table", "id long")
    upserts = LocalUpserts(str(home / "table"), key=["id"], sequence_by=[ROW_SEQUENCE])
    keep_sources(upserts.table, {"one": "shop.one"})
    upserts.checkpoint(rows((1, 10)))
    return upserts


def live(upserts: LocalUpserts) -> list[Any]:
    return sorted(load_table(upserts.location).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("name", ["shop.two", ""])
def test_a_source_that_joins_before_the_commit_is_not_truncated(tmp_path: Path, name: str) -> None:
    upserts = upserts_of(tmp_path)

    def join(_: object) -> None:
        keep_sources(open_table(upserts.location), {"two": name})

    with pytest.raises(StagedUnfitError, match=r"which has changes of shop\.one and "):
        upserts.checkpoint(rows((2, 1001)), join, truncates=[(1000, 0)])
    assert live(upserts) == [1]
    # The next start drops it, and reads its records again by the sources that there are now.
    staged = upserts.run.pending()[-1]
    with pytest.raises(StagedUnfitError, match="logs cannot be compared"):
        upserts.run.require_fit(staged)
    assert live(upserts) == [1]


@pytest.mark.parametrize("found", [{}, {"one": "shop.one"}, {"two": "shop.one"}])
def test_other_topics_of_the_same_source_may_join(tmp_path: Path, found: dict[str, str]) -> None:
    upserts = upserts_of(tmp_path)

    def join(_: object) -> None:
        keep_sources(open_table(upserts.location), found)

    upserts.checkpoint(rows((2, 1001)), join, truncates=[(1000, 0)])
    assert live(upserts) == [2]


def two_pipelines(home: Path) -> tuple[LocalUpserts, LocalUpserts]:
    """The one whose source the table has, and one that has looked at the table as it is now."""
    own = upserts_of(home)
    other = LocalUpserts(
        own.location, key=["id"], sequence_by=[ROW_SEQUENCE], job_id="other", pipeline="other"
    )
    other.run.target(other._identity)
    return own, other


def truncate_of(upserts: LocalUpserts) -> None:
    upserts.checkpoint(rows((2, 1001)), truncates=[(1000, 0)])


@pytest.mark.parametrize("name", ["shop.two", ""])
def test_a_source_does_not_join_after_a_truncate_that_its_pipeline_has_not_seen(
    tmp_path: Path, name: str
) -> None:
    own, other = two_pipelines(tmp_path)
    truncate_of(own)
    with pytest.raises(InvalidOptionError, match=r"rows of shop\.one, which was truncated at 1000"):
        other.run.keep_sources({"two": name})
    assert sources_of(open_table(own.location)) == {"one": "shop.one"}


def test_nor_where_the_truncate_is_committed_while_the_source_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = two_pipelines(tmp_path)
    commit, raced = source_notes.commit_metadata, []

    def late(*arguments: Any) -> Any:
        if not raced:
            raced.append(True)
            truncate_of(own)
        return commit(*arguments)

    monkeypatch.setattr(source_notes, "commit_metadata", late)
    with pytest.raises(InvalidOptionError, match="truncated at 1000"):
        other.run.keep_sources({"two": "shop.two"})
    assert (raced, sources_of(open_table(own.location))) == ([True], {"one": "shop.one"})


def test_a_source_joins_whatever_else_others_commit_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = two_pipelines(tmp_path)
    commit, raced = source_notes.commit_metadata, []

    def late(*arguments: Any) -> Any:
        if len(raced) < 2:
            raced.append(True)
            own.checkpoint(rows((2 + len(raced), 20)))
        return commit(*arguments)

    monkeypatch.setattr(source_notes, "commit_metadata", late)
    other.run.keep_sources({"two": "shop.two"})
    assert sources_of(open_table(own.location)) == {"one": "shop.one", "two": "shop.two"}
    # A first source needs no look at any truncate: there is nothing that it could be compared with.
    keep_sources(other.table, {"one": "shop.one", "two": "shop.two"})
