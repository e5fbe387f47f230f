"""Files without rows: a delete file may have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.formats.data_files import FILE_FORMATS, open_data_writer
from streamlake.formats.readers import read_data_file
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.file_io import file_io_for


@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_a_file_without_rows_of_nested_uuids(file_format: str, tmp_path: Path) -> None:
    """Arrow makes no empty table of a struct with an extension type."""
    schema, path = parse_ddl("id long, st struct<token: uuid>"), str(tmp_path / f"empty.{file_format}")
    io = file_io_for(path, {})
    metrics = open_data_writer(file_format, io, path, schema).close()
    assert metrics.record_count == 0
    assert list(read_data_file(io, file_format, path, schema)) == []
