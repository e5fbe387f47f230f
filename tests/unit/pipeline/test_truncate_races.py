"""A truncate that is staged while another pipeline brings a second source into the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import StagedUnfitError
from streamlake.pipeline.source_notes import keep_sources
from streamlake.records import ROW_SEQUENCE
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


def rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, places = zip(*pairs, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), ROW_SEQUENCE: pa.array(places, pa.int64())})


def upserts_of(home: Path) -> LocalUpserts:
    make_table(home / "table", "id long")
    upserts = LocalUpserts(str(home / "table"), key=["id"], sequence_by=[ROW_SEQUENCE])
    keep_sources(upserts.table, {"one": "shop.one"}, None)
    upserts.checkpoint(rows((1, 10)))
    return upserts


def live(upserts: LocalUpserts) -> list[Any]:
    return sorted(load_table(upserts.location).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("name", ["shop.two", ""])
def test_a_source_that_joins_before_the_commit_is_not_truncated(tmp_path: Path, name: str) -> None:
    upserts = upserts_of(tmp_path)

    def join(_: object) -> None:
        keep_sources(open_table(upserts.location), {"two": name}, None)

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
        keep_sources(open_table(upserts.location), found, None)

    upserts.checkpoint(rows((2, 1001)), join, truncates=[(1000, 0)])
    assert live(upserts) == [2]
