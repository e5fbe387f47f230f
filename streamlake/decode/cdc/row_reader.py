"""Reader of row images in an envelope: the target's columns, and masks of the unavailable cells.

Used by the decoders of envelopes for before and after images. The bulk path and the record-by-record path
give the same. Invariant: an inserted or updated row has all its required columns, and a deleted one has its
key and what names its table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import changes_schema, part_of
from streamlake.decode.converters.converter import Converter
from streamlake.decode.json.json_values import FieldError
from streamlake.decode.values.envelope import Array, Changes
from streamlake.decode.values.new_fields import NewFieldsError, Watch, unknown_part
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.decode.values.unavailable import Unavailable
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.records import RowKind
from streamlake.spec.types.data_types import NestedField, StructType
from streamlake.spec.types.schema import Schema

_TELLS_NOTHING = re.compile(r"(?:1970-01-01)?[-+:.TZ0 ]*|AA==|\{\}|\[\]")
"""Texts that Debezium writes for a value that is absent where its column must have one."""


class RowReader:
    """Reads rows to the columns of `schema`; `converters` has those of the columns that the envelope carries.

    `key` names the key's columns; without it, deleted rows are not checked. `routes` are columns that name a
    row's table: another value moves the row, as another key does. With `partial_update`, a field that an
    image does not have is missing, not null. With a `watch`, inserted and updated rows with new fields raise
    NewFieldsError.
    """

    def __init__(
        self,
        schema: Schema,
        converters: Mapping[str, Converter],
        key: Sequence[str],
        unavailable: Unavailable | None,
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.fields = schema.fields
        self.key = tuple(key)
        self.routes = tuple(name for name in routes if name not in key)
        self.placing = (*self.key, *self.routes)
        self.converters = converters
        self.physical = StructType(
            tuple(NestedField(0, name, part.physical) for name, part in converters.items())
        )
        self.physical_place = StructType(
            tuple(part for part in self.physical.fields if part.name in self.placing)
        )
        self._unavailable = unavailable
        self._partial_update = partial_update
        self.watch = watch
        self._changes = changes_schema(schema)
        self._types = {part.name: arrow_type(part.type) for part in schema.fields}

    def columns(self, images: pa.StructArray, *, brought: bool) -> tuple[list[pa.Array], dict[str, Array]]:
        """The target's columns, and masks of unavailable or missing cells, of an array of `physical`.

        The array has no nulls. `brought`: the rows are inserted or updated, not deleted. Raises NotBulkError,
        also when a required column is null.
        """
        arrays = []
        missing: dict[str, Array] = {}
        for part in self.fields:
            converter = self.converters.get(part.name)
            if converter is None:
                arrays.append(pa.nulls(len(images), self._types[part.name]))
                if self._partial_update and brought and len(images):
                    missing[part.name] = np.ones(len(images), dtype=bool)
            else:
                found, mask = self._known(images.field(part.name), converter)
                if mask is not None:
                    missing[part.name] = mask
                arrays.append(converter.column(found))
            if converter is None and not brought and part.name in self.routes and len(images):
                raise NotBulkError
            needed = part.required if brought else part.name in self.key
            null_count = arrays[-1].null_count
            if (
                needed
                and null_count
                and null_count != (missing[part.name].sum() if part.name in missing else 0)
            ):
                raise NotBulkError
        return arrays, missing

    def parts(self, images: pa.StructArray, kinds: Array, sequence: pa.Array, places: Array) -> list[Changes]:
        """The rows that (n,) images delete, and those that they insert or update, as two parts.

        `kinds`, `sequence` and `places` (the record's index in the raw batch) are the images', (n,) each. An
        image with a kind below 0 is left out.
        """
        parts = []
        for chosen, brought in (
            (kinds == RowKind.DELETE, False),
            ((kinds >= 0) & (kinds != RowKind.DELETE), True),
        ):
            at = np.flatnonzero(chosen)
            taken = pa.array(at, pa.int64())
            columns, missing = self.columns(images.take(taken), brought=brought)
            parts.append(
                part_of(columns, kinds[at], self._changes, sequence.take(taken), places[at], missing)
            )
        return parts

    def unclear(self, images: pa.StructArray) -> Array:
        """(n,) bool: images with a null that may mean a missing field; Arrow does not distinguish them."""
        unclear: Array = np.zeros(len(images), dtype=bool)
        for name in self.converters if self._partial_update else ():
            column = images.field(name)
            if column.null_count:
                unclear |= column.is_null().to_numpy(zero_copy_only=False)
        return unclear

    def key_changes(self, before: pa.StructArray, after: pa.StructArray) -> tuple[Array, Array]:
        """The rows that a change moved, by the columns of the key and `routes` that both images have.

        (n,) bool where a column had a value and now has another one or null, and (n,) bool where a column has
        a value and was null or missing. Raises NotBulkError.
        """
        left: Array = np.zeros(len(after), dtype=bool)
        entered: Array = np.zeros(len(after), dtype=bool)
        for name in self.placing:
            converter = self.converters.get(name)
            if converter is None:
                continue
            old, new = before.field(name), after.field(name)
            known: Array = np.ones(len(after), dtype=bool)
            values = []
            for column in (old, new):
                found, mask = self._known(column, converter)
                values.append(found)
                if mask is not None:
                    known &= ~mask
            if pa.types.is_nested(old.type):  # a number with its scale, which Arrow does not compare
                old, new = map(converter.column, values)
            differs = pc.not_equal(old, new).fill_null(False).to_numpy(zero_copy_only=False)
            was, is_ = (column.is_valid().to_numpy(zero_copy_only=False) for column in (old, new))
            left |= known & (differs | (was & ~is_))
            entered |= known & ~was & is_
        return left, entered

    def changes_key(
        self, before: Mapping[str, Any], row: Mapping[str, Any], missing: Collection[str], path: str
    ) -> bool:
        """Whether a JSON image and the row after it differ in key or `routes`; a null counts as a value.

        Raises ValueError.
        """
        found = []
        for name in self.placing:
            converter = self.converters.get(name)
            if (
                converter is None
                or name not in before
                or name in missing
                or self._is_placeholder(before[name], converter)
            ):
                continue
            found.append(converter.value(before[name], f"{path}.{name}") != row[name])
        return any(found)

    def lacks(self, images: pa.StructArray, names: Sequence[str]) -> Array:
        """(n,) bool: images without a value for at least one of these columns."""
        lacking: Array = np.zeros(len(images), dtype=bool)
        for name in names:
            converter = self.converters.get(name)
            if converter is None:
                return np.ones(len(images), dtype=bool)
            column = images.field(name)
            lacking |= column.is_null().to_numpy(zero_copy_only=False)
            mask = self._known(column, converter)[1]
            if mask is not None:
                lacking |= mask
        return lacking

    def is_whole(self, image: Any) -> bool:
        """Whether an image has a value outside of the key and `routes`; an image of the key only has none."""
        return isinstance(image, dict) and any(
            _has_value(image.get(name)) and not self._is_placeholder(image.get(name), converter)
            for name, converter in self.converters.items()
            if name not in self.placing
        )

    def row(
        self, image: Any, path: str, *, brought: bool, nulls: Collection[str] = ()
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Column -> value, and the columns without a known value, for one JSON image.

        `brought`: the row is inserted or updated; otherwise it is deleted, and its columns `nulls` may be
        null. Raises ValueError with the reason.
        """
        if not isinstance(image, dict):
            raise FieldError(f"'{path}' is needed, but it is missing or not an object")
        row: dict[str, Any] = {}
        missing = set()
        for name in getattr(image, "twice", ()):
            if name in self.converters:
                raise FieldError(f"'{path}.{name}' is there twice")
        if self.watch is not None and brought:
            self._require_known(image, self.watch)
        for part in self.fields:
            converter = self.converters.get(part.name)
            found = image.get(part.name) if converter is not None else None
            if self._partial_update and brought and part.name not in (*image, *self.key):
                row[part.name] = None
                missing.add(part.name)
                continue
            if converter is None:
                row[part.name] = None
            elif self._is_placeholder(found, converter):
                if not brought and part.name in self.routes:
                    raise FieldError(
                        f"'{path}.{part.name}' is required to find the row's table, but it was left out"
                    )
                row[part.name] = None
                missing.add(part.name)
                continue
            else:
                row[part.name] = converter.value(found, f"{path}.{part.name}")
            if row[part.name] is None:
                is_null = part.name in image and part.name in nulls and not part.required
                if part.required if brought else part.name in self.key and not is_null:
                    raise FieldError(f"'{path}.{part.name}' is required, but it is missing or null")
                if not brought and part.name in self.routes and not is_null:
                    raise FieldError(
                        f"'{path}.{part.name}' is required to find the row's table, but it is missing, or "
                        "null in a row that has nothing but its key"
                    )
        return row, frozenset(missing)

    def _is_placeholder(self, found: Any, converter: Converter) -> bool:
        return self._unavailable is not None and self._unavailable.is_placeholder(found, converter.physical)

    def _require_known(self, image: Mapping[str, Any], watch: Watch) -> None:
        if unknown_part(dict(image), self.fields, watch):
            raise NewFieldsError

    def _known(self, array: pa.Array, converter: Converter) -> tuple[pa.Array, Any]:
        mask = None if self._unavailable is None else self._unavailable.mask(array, converter.physical)
        if mask is None:
            return array, None
        return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array), mask


def _has_value(found: Any) -> bool:
    """Whether a value is more than a stand-in for an absent one."""
    if isinstance(found, str):
        return _TELLS_NOTHING.fullmatch(found) is None
    return bool(found)
