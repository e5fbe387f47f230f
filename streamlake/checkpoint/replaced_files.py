"""Data and delete files that a checkpoint replaces, as JSON that identifies them in manifests.

They are part of a Committable. Partition values carry their Python type, so that a Committable can be read
without the table. Invariant: everything that a commit looks at is kept, column statistics are not. So the
data file that position deletes apply to is named here, even where only their bounds showed it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from streamlake.spec.metadata.data_file import DataFile, FileContent

_KEPT = (
    "file_path",
    "file_format",
    "spec_id",
    "record_count",
    "file_size_in_bytes",
    "content_offset",
    "content_size_in_bytes",
)
_TYPES: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bool": (bool, bool, bool),
    "int": (int, int, int),
    "float": (float, repr, float),
    "str": (str, str, str),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}


def replaced_file_to_json(file: DataFile) -> dict[str, Any]:
    """One file as a JSON object."""
    kept = {name: value for name in _KEPT if (value := getattr(file, name)) is not None}
    if file.deletes_from is not None:
        kept["referenced_data_file"] = file.deletes_from
    return {"content": int(file.content), "partition": [_tagged(value) for value in file.partition], **kept}


def replaced_file_from_json(obj: dict[str, Any]) -> DataFile:
    """The file in such an object. Raises KeyError, TypeError or ValueError for any other object."""
    fields = dict(obj)
    partition = tuple(_value(part) for part in fields.pop("partition"))
    return DataFile(content=FileContent(fields.pop("content")), partition=partition, **fields)


def _tagged(value: Any) -> list[Any] | None:
    if value is None:
        return None
    for tag, (type_, encode, _) in _TYPES.items():
        if isinstance(value, type_):
            return [tag, encode(value)]
    raise TypeError(f"a partition value cannot be a {type(value).__name__}: {value!r}")


def _value(tagged: list[Any] | None) -> Any:
    if tagged is None:
        return None
    tag, text = tagged
    return _TYPES[tag][2](text)
