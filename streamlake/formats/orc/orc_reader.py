"""Reader of ORC data files, stripe by stripe.

pyarrow does not say where stripes start, so for a part of a file they are found in its footer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from pyarrow import orc

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_ids import field_id_of
from streamlake.formats.columns.file_batches import FileBatches, RowGroupFilter, Split, in_split, read_errors
from streamlake.formats.orc.orc_container import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    children,
    number,
    parse_message,
    unpacked,
)
from streamlake.formats.orc.orc_schema import schema_with_ids
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

_CODECS = {"UNCOMPRESSED": NONE, "ZLIB": ZLIB, "SNAPPY": SNAPPY, "LZ4": LZ4, "ZSTD": ZSTD}
_STRIPES, _OFFSET, _ROWS = 3, 1, 5
"""Numbers of fields: of the footer, and of the information about a stripe."""


def read_orc_file(
    io: FileIO,
    path: str,
    schema: Schema,
    *,
    with_ids: Callable[[pa.Schema], pa.Schema],
    batch_size: int,
    row_group_filter: RowGroupFilter | None,
    split: Split | None,
    use_threads: bool,
) -> FileBatches:
    """Batches of the wanted columns, each with the position of its first row in the file."""
    with read_errors(path), io.open_input(path) as stream:
        file = orc.ORCFile(stream)
        stripes = None if split is None else _stripes(file, stream)
        if not file.nrows or (stripes is None and not in_split(0, split)):
            return
        file_schema = with_ids(schema_with_ids(file.schema))
        wanted = {part.field_id for part in schema.fields}
        names = [part.name for part in file_schema if field_id_of(part) in wanted]
        fields = [part for part in file_schema if part.name in names]
        position = 0
        for at in range(file.nstripes):
            if stripes is not None and not in_split(stripes[at].start, split):
                position += stripes[at].rows
                continue
            stripe = _stripe(file, at, names or file_schema.names[:1], path)
            columns = [stripe.column(part.name).cast(part.type) for part in fields]
            whole = (
                pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if fields else stripe.select([])
            )
            for start in range(0, whole.num_rows, batch_size):
                batch = whole.slice(start, batch_size)
                yield position, batch
                position += batch.num_rows


class _Stripe(NamedTuple):
    """Where a stripe starts in the file, and the number of its rows."""

    start: int
    rows: int


def _stripes(file: orc.ORCFile, stream: BinaryIO) -> list[_Stripe] | None:
    """The stripes of a file; None where its footer does not show them, which is then read as a whole."""
    codec = _CODECS.get(file.compression)
    if codec is None:
        return None
    stream.seek(file.file_length - 1 - file.file_postscript_length - file.file_footer_length)
    footer = parse_message(unpacked(stream.read(file.file_footer_length), codec))
    found = [_Stripe(number(each, _OFFSET), number(each, _ROWS)) for each in children(footer, _STRIPES)]
    agrees = len(found) == file.nstripes and sum(each.rows for each in found) == file.nrows
    return found if agrees else None


def _stripe(file: orc.ORCFile, at: int, names: list[str], path: str) -> pa.RecordBatch:
    try:
        return file.read_stripe(at, columns=names)
    except pa.ArrowException as cause:
        if "nanosecond" in str(cause):
            raise FeatureUnsupportedError(
                f"{path}: the ORC file holds timestamps outside of the years 1677 to 2262, which pyarrow "
                "cannot read; rewrite the table as Parquet with another engine"
            ) from cause
        raise
