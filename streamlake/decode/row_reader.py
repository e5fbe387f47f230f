"""The row inside an envelope -> the target's columns, with the cells that are not known told apart.

Used by the decoders of envelopes for before and after images. Both ways, bulk and single, give the same. Invariant: a
row that is brought in has all its required columns, and one that is taken out has its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.change_parts import changes_schema, part_of
from streamlake.decode.envelope import Array, Changes
from streamlake.decode.json_values import FieldError
from streamlake.decode.new_fields import NewFieldsError, Watch, is_value
from streamlake.decode.readings import Reading
from streamlake.decode.text_columns import NotBulkError
from streamlake.decode.unavailable import Unavailable
from streamlake.formats.arrow_schema import arrow_type
from streamlake.records import RowKind
from streamlake.spec.schema import Schema
from streamlake.spec.types import NestedField, StructType


class RowReader:
    """Reads rows to the columns of `schema`; `readings` has those of the columns that the envelope carries.

    `key` names the key's columns; without it rows that are taken out are not checked. With `partial_update` a field that
    an image does not have is unset, not null. With a `watch`, rows that are brought in raise NewFieldsError.
    """

    def __init__(
        self,
        schema: Schema,
        readings: Mapping[str, Reading],
        key: Sequence[str],
        unavailable: Unavailable | None,
        *,
        partial_update: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.fields = schema.fields
        self.key = tuple(key)
        self.readings = readings
        self.physical = StructType(
            tuple(NestedField(0, name, part.physical) for name, part in readings.items())
        )
        self._unavailable = unavailable
        self._partial_update = partial_update
        self.watch = watch
        self._names = frozenset(part.name for part in schema.fields)
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

    def key_differs(self, before: pa.StructArray, after: pa.StructArray) -> pa.Array:
        """(n,) bool: whether a column of the key has another value in `after`; false where `before` has none."""
        differs = None
        for name in self.key:
            if name in self.readings:
                one = pc.not_equal(before.field(name), after.field(name)).fill_null(False)
                differs = one if differs is None else pc.or_(differs, one)
        return pa.repeat(False, len(after)) if differs is None else differs

    def row(self, image: Any, path: str, *, brought: bool) -> tuple[dict[str, Any], frozenset[str]]:
        """Column -> value, and the unset columns, for one image of JSON. Raises ValueError with the reason."""
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
            elif self._unavailable is not None and self._unavailable.marks(found, reading.physical):
                row[part.name] = None
                unset.add(part.name)
                continue
            else:
                row[part.name] = reading.value(found, f"{path}.{part.name}")
            if row[part.name] is None and (part.required if brought else part.name in self.key):
                raise FieldError(f"'{path}.{part.name}' is required, but it is missing or null")
        return row, frozenset(unset)

    def _require_known(self, image: Mapping[str, Any], watch: Watch) -> None:
        for name, found in image.items():
            if name not in self._names and not watch.is_taken(name) and is_value(found):
                raise NewFieldsError

    def _known(self, array: pa.Array, reading: Reading) -> tuple[pa.Array, Any]:
        mask = None if self._unavailable is None else self._unavailable.mask(array, reading.physical)
        if mask is None:
            return array, None
        return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array), mask
