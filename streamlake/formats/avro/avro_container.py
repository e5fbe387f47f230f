"""Avro object container files, read and written with fastavro (Avro specification, Object Container Files).

Manifests, manifest lists and Avro data files are such files. Records are decoded a block at a time. The
schema is parsed once per process and has no logical types, so that values stay as they are stored: a date
before the year 1 is a number like any other. Invariant: damage is a DataInvalidError that names the file,
whatever byte is wrong.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import fastavro
from fastavro.write import Writer

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.ids import new_uuid

_WRITTEN_CODECS = {"gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "uncompressed": "null"}
_READ_CODECS = frozenset({*_WRITTEN_CODECS.values(), "bzip2", "xz"})
BLOCK_BYTES = 64_000
_LOGICAL_KEYS = ("logicalType", "precision", "scale")

Json = Any


@dataclass(frozen=True, eq=False)
class ParsedSchema:
    """Schemas prepared for fastavro: `writer` of what is stored, `reader` of what is wanted if it differs.

    From `parse_schema` they are arrays of records, for whole blocks; from `parse_record` they are records.
    """

    writer: Any
    reader: Any = None


def parse_schema(schema: Json, reader: Json = None) -> ParsedSchema:
    """Prepare a stored record schema (as JSON values) for many files.

    `reader` may leave out fields, which are then skipped. Logical types are removed. Raises whatever fastavro
    raises for an invalid schema.
    """
    return ParsedSchema(_array_of(schema), None if reader is None else _array_of(reader))


def parse_record(schema: Json, reader: Json = None) -> ParsedSchema:
    """Prepare a record schema for single records, as `AvroFile.split_records` takes them.

    `reader` and errors are as in `parse_schema`.
    """
    parsed = [
        None if each is None else fastavro.parse_schema(_without_logical_types(each))
        for each in (schema, reader)
    ]
    return ParsedSchema(*parsed)


def _array_of(record: Json) -> Any:
    return fastavro.parse_schema({"type": "array", "items": _without_logical_types(record)})


def _without_logical_types(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_logical_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value for key, value in schema.items() if key not in _LOGICAL_KEYS}
    for key in ("type", "items", "values", "fields"):
        if key in out:
            out[key] = _without_logical_types(out[key])
    return out


def damaged(path: str, what: str) -> DataInvalidError:
    """The DataInvalidError for a container file that is damaged."""
    return DataInvalidError(
        f"{path} is damaged: {what}; restore the file from a backup, or roll the table back to a snapshot "
        "that does not use it"
    )


class AvroFile:
    """A container file being read: its metadata (without `avro.*`), the writer's schema text, its records.

    The records can be read once. Raises DataInvalidError when the file is damaged or not an Avro file,
    FeatureUnsupportedError for an unknown codec.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        self._stream = io.BytesIO(data)
        if not fastavro.is_avro(self._stream):
            raise damaged(path, "it does not begin as an Avro file")
        self._stream.seek(0)
        try:
            self._blocks = fastavro.block_reader(self._stream)
            header: dict[str, str] = self._blocks.metadata
            self.schema_text = header["avro.schema"]
        except Exception as cause:  # fastavro passes on errors of its codecs and of Python
            raise damaged(path, f"its header does not decode ({cause!r})") from cause
        codec = header.get("avro.codec", "null")
        if codec not in _READ_CODECS:
            raise FeatureUnsupportedError(f"{path}: the Avro codec {codec!r} is not supported")
        self.metadata = {key: value for key, value in header.items() if not key.startswith("avro.")}

    def records(self, parsed: ParsedSchema) -> Iterator[Any]:
        """Every record, in file order, as fastavro decodes it.

        `parsed` comes from `parse_schema` of `schema_text`.
        """
        yield from self._decoded(partial(_decoded, parsed))

    def split_records(self, head: ParsedSchema, rest: ParsedSchema) -> Iterator[tuple[Any, Any, bytes]]:
        """Every record, in file order: its first fields, the other fields, and the bytes of the other fields.

        Both schemas come from `parse_record`; together they make up the stored schema.
        """
        yield from self._decoded(partial(_split, head, rest))

    def _decoded(self, decode: Callable[[int, bytes], list[Any]]) -> Iterator[Any]:
        while True:
            start = self._stream.tell()
            try:
                block = next(self._blocks, None)
                if block is None:
                    return
                records = decode(block.num_records, block.bytes_.getvalue())
            except Exception as cause:
                raise damaged(self.path, f"the block at byte {start} does not decode ({cause!r})") from cause
            yield from records


def _decoded(parsed: ParsedSchema, count: int, payload: bytes) -> list[Any]:
    """The records of a block, decoded in one call; the block is an array without its frame."""
    if count < 0 or (payload and count > len(payload)):
        raise ValueError(f"{len(payload)} bytes cannot hold {count} records")
    stream = io.BytesIO()
    if count:
        fastavro.schemaless_writer(stream, "long", count)
    stream.write(payload + b"\x00")
    stream.seek(0)
    records: list[Any] = fastavro.schemaless_reader(stream, parsed.writer, parsed.reader)
    if stream.tell() != len(stream.getbuffer()) or len(records) != count:
        raise ValueError("the block is longer or shorter than its records")
    return records


def _split(
    head: ParsedSchema, rest: ParsedSchema, count: int, payload: bytes
) -> list[tuple[Any, Any, bytes]]:
    if count < 0 or (payload and count > len(payload)):
        raise ValueError(f"{len(payload)} bytes cannot hold {count} records")
    stream = io.BytesIO(payload)
    records = []
    for _ in range(count):
        first = fastavro.schemaless_reader(stream, head.writer, head.reader)
        start = stream.tell()
        others = fastavro.schemaless_reader(stream, rest.writer, rest.reader)
        records.append((first, others, payload[start : stream.tell()]))
    if stream.tell() != len(payload):
        raise ValueError("the block is longer than its records")
    return records


class EncodedBlock(NamedTuple):
    """Encoded records, as fastavro's `Writer.write_block` takes them."""

    num_records: int
    bytes_: io.BytesIO


def container_writer(
    sink: BinaryIO, schema: Any, metadata: Mapping[str, str], compression: AvroCompression
) -> Writer:
    """A fastavro writer of a new file, with its header written to `sink`; `schema` is best parsed already.

    It takes records (`write`) or encoded blocks (`write_block`); `flush` writes the last block.
    """
    return Writer(
        sink,
        schema,
        codec=_WRITTEN_CODECS[compression.codec],
        sync_interval=BLOCK_BYTES,
        metadata=dict(metadata),
        sync_marker=uuid.UUID(new_uuid()).bytes,
        compression_level=compression.level,
    )
