"""Random histories of rows and of every kind of delete, against a model that looks at one row at a time."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake.formats.parquet import row_groups
from streamlake.spec.types.schema import Schema
from streamlake.tables import LoadedTable
from tests.helpers.delete_history import CATEGORY, NUMBER, TYPES, History, arrow_rows, record


def _texts(table: pa.Table) -> Counter[str]:
    """Rows as texts, in which NaN equals NaN and -0.0 differs from 0.0."""
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


def _expected(history: History, rows: list[dict[int, Any]], schema: Schema) -> Counter[str]:
    records = []
    for row in rows:
        records.append(record(schema.fields, {part: row.get(part) for part in (*row, *schema.fields_by_id)}))
    return _texts(arrow_rows(records, schema))


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), st.sampled_from([2, 3]), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
def test_scans_equal_the_model(data: Any, version: int, types: list[str]) -> None:
    # Few rows are read by their pages; in files this small that goes for all of them, or for none.
    by_pages = mock.patch.object(row_groups, "_ROWS_PER_PAGE", data.draw(st.sampled_from([0, 1 << 40])))
    with by_pages, tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/t", data.draw, version, types)
        for _ in range(data.draw(st.integers(1, 5))):
            if data.draw(st.integers(0, 2)) == 0:
                history.evolve()
            history.checkpoint()
        table: LoadedTable = history.table
        live = history.model.live()
        note(repr(history.model))
        assert _texts(table.scan().to_arrow()) == _expected(history, live, table.schema)
        assert table.scan().count() == len(live)
        some = list(table.scan().to_batches(batch_size=data.draw(st.integers(1, 3))))
        assert _texts(pa.Table.from_batches(some, table.scan().arrow_schema)) == _expected(
            history, live, table.schema
        )
        numbers = sorted(row[NUMBER] for row in live)
        assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == numbers
        bound = data.draw(st.integers(0, history.numbers + 1))
        wanted = [row for row in live if row[NUMBER] <= bound and row[CATEGORY] == "a"]
        filtered = table.scan(f"n <= {bound} and category = 'a'")
        assert _texts(filtered.to_arrow()) == _expected(history, wanted, table.schema)
        assert filtered.count() == len(wanted)
        places = table.scan(columns=["_file", "_pos", "n"]).to_arrow().to_pylist()
        found = {(row["_file"], row["_pos"]): row["n"] for row in places}
        assert found == {
            (file.path, at): row[NUMBER]
            for file in history.model.data
            for at, row in enumerate(file.rows)
            if row in live
        }
