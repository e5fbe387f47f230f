"""JSON columns by record templates, many times faster than a parser: only values are cut out and read.

The first thing that `JsonColumns` tries with a block. For the records that match one of the block's templates
(see `record_template`) it gives what `JsonColumns` would give, and says which records these are. The others
take the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.record_template import Block, Matches, Path, RecordTemplate, template_of
from streamlake.decode.json.template_values import TemplateValues
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.spec.types.data_types import IcebergType, ListType, NestedField, StructType, children

_Array = np.ndarray[Any, Any]

LEAST = 64
"""The number of records in a block below which looking for a template does not pay."""
_BLOCKS_BEFORE_GIVING_UP = 3
_LONGEST_REST = 6
_KEPT_TEMPLATES = 32
"""The number of templates remembered.

Changes have one with and one without the old row, and one for each set of texts that are null.
"""
_NEW_TEMPLATES = 8
"""The number of templates looked for in one block."""
_PIECE_BYTES = 2 << 20
"""The bytes read at once: few enough to stay in a core's own cache while they are read value by value."""
_PIECE_RECORDS = 256
"""The minimum number of records read at once."""


def has_list(type_: IcebergType) -> bool:
    """Whether no template holds the type: a list, or anything that holds one."""
    return isinstance(type_, ListType) or any(has_list(part.type) for part in children(type_))


class TemplateColumns:
    """Reads blocks into the columns of `fields` (none holds a map), as far as their records share templates.

    Keeps the templates of the last blocks. After a few blocks in a row without one, it pauses for more and
    more blocks. Templates with fields that are not requested are left out: anywhere with `strict_names`,
    otherwise in the object `watched`, where `known` fields do not count.
    """

    def __init__(
        self,
        fields: Sequence[NestedField],
        options: JsonOptions,
        *,
        strict_names: bool,
        watched: Path | None = None,
        known: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._fields = tuple(fields)
        self._options = options
        self._checked = () if strict_names else watched
        self._known = known
        self._templates: list[RecordTemplate] = []
        self._misses = 0
        self._rest = 0
        self._tries = 0
        self._impossible = any(has_list(part.type) for part in fields)

    def read(self, values: pa.Array) -> tuple[_Array | None, list[pa.Array]]:
        """The numbers of the records read, in order (None: all), and one array per field for these records.

        `values` is a binary array without nulls. Raises NotBulkError where fewer than half of them can be
        read this way.
        """
        if self._impossible or len(values) < LEAST:
            raise NotBulkError
        if self._rest:
            self._rest -= 1
            raise NotBulkError
        self._tries = _NEW_TEMPLATES
        pieces = max(1, min(values.nbytes // _PIECE_BYTES, len(values) // _PIECE_RECORDS))
        bounds = [len(values) * piece // pieces for piece in range(pieces + 1)]
        rows, parts = [], []
        alike = 0
        for low, high in pairwise(bounds):
            found = self._found(values.slice(low, high - low))
            if found is None:
                continue
            alike += len(found.rows)
            # A value that needs a closer look leaves its piece to the general reader.
            with suppress(NotBulkError):
                parts.append(found.columns(self._fields))
                rows.append(low + found.rows)
        self._misses = 0 if 2 * alike >= len(values) else self._misses + 1
        if self._misses >= _BLOCKS_BEFORE_GIVING_UP:
            self._rest = 1 << min(self._misses - _BLOCKS_BEFORE_GIVING_UP, _LONGEST_REST)
        count = sum(map(len, rows))
        if 2 * count < len(values):
            raise NotBulkError
        joined = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        return None if count == len(values) else np.concatenate(rows), joined

    def _found(self, values: pa.Array) -> TemplateValues | None:
        """The records of a piece that match templates; None where they are not UTF-8."""
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        block = Block.of(values)
        return TemplateValues(block, self._groups(values, block), self._options)

    def _groups(self, values: pa.Array, block: Block) -> list[tuple[RecordTemplate, Matches]]:
        """Records grouped by template: the known ones first, and new ones while it pays."""
        is_left: _Array = np.ones(len(block), dtype=bool) if block.excluded is None else ~block.excluded
        groups = []
        sizes: list[int] = []
        while True:
            left = np.flatnonzero(is_left)
            number = len(sizes)
            if number == len(self._templates) and not self._finds_new(values, block.quotes, left):
                break
            template = self._templates[number]
            sizes.append(0)
            if not _is_worth(
                int(np.count_nonzero(block.quotes[left] == template.quotes)), len(template.values)
            ):
                continue
            matches = template.match(block, left)
            sizes[-1] = len(matches.rows)
            if len(matches.rows):
                groups.append((template, matches))
                is_left[matches.rows] = False
        # The templates that most records match come first.
        order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        self._templates = [self._templates[number] for number in order[:_KEPT_TEMPLATES]]
        return groups

    def _finds_new(self, values: pa.Array, quotes: _Array, left: _Array) -> bool:
        """Whether a template was added that enough of the records `left` may match, by their `quotes`."""
        counts, sizes = np.unique(quotes[left], return_counts=True)
        for at in np.argsort(-sizes, kind="stable"):
            # A name and its value have four quotation marks, or two.
            if not _is_worth(int(sizes[at]), int(counts[at]) // 4):
                return False
            alike = left[quotes[left] == counts[at]]
            # Where the first record has no template or a known one, a later one may have a new one.
            for record in dict.fromkeys((int(alike[0]), int(alike[len(alike) * 5 // 8]))):
                if not self._tries:
                    return False
                self._tries -= 1
                found = template_of(values[record].as_py())
                if found is None or found in self._templates:
                    continue
                if self._checked is None or self._knows_all(found, self._below(self._checked), self._checked):
                    self._templates.append(found)
                    return True
        return False

    def _below(self, where: Path) -> Sequence[NestedField]:
        """The requested fields in the object at a path."""
        fields: Sequence[NestedField] = self._fields
        for name in where:
            type_ = next((part.type for part in fields if part.name == name), None)
            fields = type_.fields if isinstance(type_, StructType) else ()
        return fields

    def _knows_all(self, template: RecordTemplate, fields: Sequence[NestedField], where: Path) -> bool:
        names = {(*where, part.name) for part in fields}
        below = {path for path in (*template.values, *template.objects) if len(path) == len(where) + 1}
        if where == self._checked:
            below = {path for path in below if not self._known(path[-1])}
        inner = [part for part in fields if isinstance(part.type, StructType)]
        return {path for path in below if path[: len(where)] == where} <= names and all(
            self._knows_all(template, part.type.fields, (*where, part.name))
            for part in inner
            if isinstance(part.type, StructType)
        )


def _is_worth(records: int, values: int) -> bool:
    """Whether reading so many records by template, with some calls per value, is faster than a parser."""
    return records > 0 and 64 * records >= values * LEAST
