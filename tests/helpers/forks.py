"""Tables over files that are there already: forks of a table, and tables of Parquet files. Nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from streamlake.catalog.open import open_table
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import LoadedTable, create_table
from tests.helpers.invariants import live_data_files
from tests.helpers.readers import current_metadata_file


def fork_table(source: Path, target: Path) -> None:
    """The table at `source`, with its snapshots, at `target` too: what is written there leaves the first as it is."""
    folder = target / "metadata"
    folder.mkdir(parents=True)
    metadata = json.loads(current_metadata_file(source).read_text())
    metadata |= {"location": f"file://{target}", "metadata-log": []}
    (folder / "v1.metadata.json").write_text(json.dumps(metadata))
    (folder / "version-hint.text").write_text("1")


def table_of_files(
    location: Path, ddl: str, files: Iterable[Path], properties: dict[str, str] | None = None
) -> LoadedTable:
    """A table of Parquet files whose columns carry the field ids of `ddl`, in one snapshot."""
    table = create_table(location, ddl, properties=properties)
    _append(location, [_data_file(path) for path in files])
    return table.refresh()


def table_of_same_files(
    location: Path, ddl: str, source: Path, properties: dict[str, str] | None = None
) -> LoadedTable:
    """A new table of the data files of the one at `source`, which has no deletes, in one snapshot."""
    table = create_table(location, ddl, properties=properties)
    files = live_data_files(open_table(str(source)))
    _append(location, [replace(file, first_row_id=None) for file in files])
    return table.refresh()


def _append(location: Path, files: Iterable[DataFile]) -> None:
    operation = AppendFiles(open_table(str(location)))
    for file in files:
        operation.append_file(file)
    operation.commit()


def _data_file(path: Path) -> DataFile:
    return DataFile(
        content=FileContent.DATA,
        file_path=f"file://{path.absolute()}",
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=pq.read_metadata(path).num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
