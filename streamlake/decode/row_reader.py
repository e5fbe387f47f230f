"""The row inside an envelope -> the target's columns, with the cells that are not known told apart.

Used by the decoders of envelopes for before and after images. Both ways, bulk and single, give the same. Invariant: a
row that is brought in has all its required columns, and one that is taken out has its key and what names its table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.change_parts import changes_schema, part_of
from streamlake.decode.envelope import Array, Changes
from streamlake.decode.json_values import FieldError
from streamlake.decode.new_fields import NewFieldsError, Watch, unknown_part
from streamlake.decode.readings import Reading
from streamlake.decode.text_columns import NotBulkError
from streamlake.decode.unavailable import Unavailable
from streamlake.formats.arrow_schema import arrow_type
from streamlake.records import RowKind
from streamlake.spec.schema import Schema
from streamlake.spec.types import NestedField, StructType

_TELLS_NOTHING = re.compile(r"(?:1970-01-01)?[-+:.TZ0 ]*|AA==|\{\}|\[\]")
"""Texts that Debezium writes for a value that is not there, where its column has to have one."""


class RowReader:
    """Reads rows to the columns of `schema`; `readings` has those of the columns that the envelope carries.

    `key` names the key's columns; without it rows that are taken out are not checked. `routes` are columns that name a row's
    table: another value moves the row, as another key does. With `partial_update` a field that an image does not have is unset,
    not null. With a `watch`, rows that are brought in raise NewFieldsError.
    """

    def __init__(
        self,
        schema: Schema,
        readings: Mapping[str, Reading],
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
        self.readings = readings
        self.physical = StructType(
            tuple(NestedField(0, name, part.physical) for name, part in readings.items())
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
        """The target's columns and the masks of unset cells for an array of `physical` without nulls.

        Raises NotBulkError, also when a required column is null.
        """
        arrays = []
        unset: dict[str, Array] = {}
        for part in self.fields:
            reading = self.readings.get(part.name)
            if reading is None:
                arrays.append(pa.nulls(len(images), self._types[part.name]))
                if self._partial_update and brought and len(images):
                    unset[part.name] = np.ones(len(images), dtype=bool)
            else:
                found, mask = self._known(images.field(part.name), reading)
                if mask is not None:
                    unset[part.name] = mask
                arrays.append(reading.column(found))
            if reading is None and not brought and part.name in self.routes and len(images):
                raise NotBulkError
            needed = part.required if brought else part.name in self.key
            missing = arrays[-1].null_count
            if needed and missing and missing != (unset[part.name].sum() if part.name in unset else 0):
                raise NotBulkError
        return arrays, unset

    def parts(self, images: pa.StructArray, kinds: Array, sequence: pa.Array, places: Array) -> list[Changes]:
        """The rows that (n,) images take out, and those that they bring in, as two parts; a kind below 0 is left out.

        `kinds`, `sequence` and `places` (of the record in the raw batch) are the images', (n,) each.
        """
        parts = []
        for chosen, brought in (
            (kinds == RowKind.DELETE, False),
            ((kinds >= 0) & (kinds != RowKind.DELETE), True),
        ):
            at = np.flatnonzero(chosen)
            taken = pa.array(at, pa.int64())
            columns, unset = self.columns(images.take(taken), brought=brought)
            parts.append(part_of(columns, kinds[at], self._changes, sequence.take(taken), places[at], unset))
        return parts

    def unclear(self, images: pa.StructArray) -> Array:
        """(n,) bool: images with a null that may mean that the field is not there, which Arrow's reader does not tell."""
        unclear: Array = np.zeros(len(images), dtype=bool)
        for name in self.readings if self._partial_update else ():
            column = images.field(name)
            if column.null_count:
                unclear |= column.is_null().to_numpy(zero_copy_only=False)
        return unclear

    def moved(self, before: pa.StructArray, after: pa.StructArray) -> tuple[Array, Array]:
        """Which of n rows are now in another place, by columns of the key and `routes` that both images know: (n,) bool where one
        had a value and has another or null, and (n,) bool where one has a value and had null, or was not there."""
        left: Array = np.zeros(len(after), dtype=bool)
        entered: Array = np.zeros(len(after), dtype=bool)
        for name in self.placing:
            reading = self.readings.get(name)
            if reading is None:
                continue
            old, new = before.field(name), after.field(name)
            known: Array = np.ones(len(after), dtype=bool)
            for column in (old, new):
                mask = self._known(column, reading)[1]
                if mask is not None:
                    known &= ~mask
            differs = pc.not_equal(old, new).fill_null(False).to_numpy(zero_copy_only=False)
            was, is_ = (column.is_valid().to_numpy(zero_copy_only=False) for column in (old, new))
            left |= known & (differs | (was & ~is_))
            entered |= known & ~was & is_
        return left, entered

    def has_moved(
        self, before: Mapping[str, Any], row: Mapping[str, Any], unset: Collection[str], path: str
    ) -> bool:
        """The same for one image of JSON and the row that follows it, where a null that is there is a value. Raises ValueError."""
        found = []
        for name in self.placing:
            reading = self.readings.get(name)
            if reading is None or name not in before or name in unset or self._marks(before[name], reading):
                continue
            found.append(reading.value(before[name], f"{path}.{name}") != row[name])
        return any(found)

    def lacks(self, images: pa.StructArray, names: Sequence[str]) -> Array:
        """(n,) bool: images without a value for one of these columns."""
        lacking: Array = np.zeros(len(images), dtype=bool)
        for name in names:
            reading = self.readings.get(name)
            if reading is None:
                return np.ones(len(images), dtype=bool)
            column = images.field(name)
            lacking |= column.is_null().to_numpy(zero_copy_only=False)
            mask = self._known(column, reading)[1]
            if mask is not None:
                lacking |= mask
        return lacking

    def is_whole(self, image: Any) -> bool:
        """Whether an image has a value outside of the key and `routes`, as one that has nothing but a key does not."""
        return isinstance(image, dict) and any(
            _tells(image.get(name)) and not self._marks(image.get(name), reading)
            for name, reading in self.readings.items()
            if name not in self.placing
        )

    def row(
        self, image: Any, path: str, *, brought: bool, nulls: Collection[str] = ()
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Column -> value, and the unset columns, for one image of JSON. Of a row that is taken out the columns `nulls` may be null.

        Raises ValueError with the reason.
        """
        if not isinstance(image, dict):
            raise FieldError(f"'{path}' is needed, but it is missing or no object")
        row: dict[str, Any] = {}
        unset = set()
        for name in getattr(image, "twice", ()):
            if name in self.readings:
                raise FieldError(f"'{path}.{name}' is there twice")
        if self.watch is not None and brought:
            self._require_known(image, self.watch)
        for part in self.fields:
            reading = self.readings.get(part.name)
            found = image.get(part.name) if reading is not None else None
            if self._partial_update and brought and part.name not in (*image, *self.key):
                row[part.name] = None
                unset.add(part.name)
                continue
            if reading is None:
                row[part.name] = None
            elif self._marks(found, reading):
                if not brought and part.name in self.routes:
                    raise FieldError(
                        f"'{path}.{part.name}' is required to tell the row's table, but it was left out"
                    )
                row[part.name] = None
                unset.add(part.name)
                continue
            else:
                row[part.name] = reading.value(found, f"{path}.{part.name}")
            if row[part.name] is None:
                is_null = part.name in image and part.name in nulls and not part.required
                if part.required if brought else part.name in self.key and not is_null:
                    raise FieldError(f"'{path}.{part.name}' is required, but it is missing or null")
                if not brought and part.name in self.routes and not is_null:
                    raise FieldError(
                        f"'{path}.{part.name}' is required to tell the row's table, but it is missing, or null in a row that has nothing but its key"
                    )
        return row, frozenset(unset)

    def _marks(self, found: Any, reading: Reading) -> bool:
        return self._unavailable is not None and self._unavailable.marks(found, reading.physical)

    def _require_known(self, image: Mapping[str, Any], watch: Watch) -> None:
        if unknown_part(dict(image), self.fields, watch):
            raise NewFieldsError

    def _known(self, array: pa.Array, reading: Reading) -> tuple[pa.Array, Any]:
        mask = None if self._unavailable is None else self._unavailable.mask(array, reading.physical)
        if mask is None:
            return array, None
        return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array), mask


def _tells(found: Any) -> bool:
    """Whether a value is more than what stands for none."""
    if isinstance(found, str):
        return _TELLS_NOTHING.fullmatch(found) is None
    return bool(found)
