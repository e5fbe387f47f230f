"""Whether equality deletes can have the key of a row of a data file, by the metrics of both.

Prunes the data files in which deleted rows are searched, and their row groups. Invariant: false only when no
row of the one can have a key of the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlake.spec.expressions.evaluators import column_range
from streamlake.spec.expressions.value_range import ValueRange
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.data_types import DoubleType, FloatType, UUIDType
from streamlake.spec.types.schema import Schema


class KeyOverlap:
    """Compares the keys of equality delete files with data files; `schema` gives the types of columns."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def any_may_hit(self, deletes: Iterable[DataFile], file: DataFile) -> bool:
        """Whether any of the equality delete files can delete a row of the data file, or of its row group."""
        return any(self.may_hit(each, file) for each in deletes)

    def may_hit(self, delete: DataFile, file: DataFile) -> bool:
        """Whether an equality delete file can delete a row of the data file."""
        for field_id in delete.equality_ids or ():
            part = self._schema.field(field_id)
            if part is None or (file.lower_bounds or {}).get(field_id) is None:
                continue
            keys, rows = (column_range(each, field_id, part.type) for each in (delete, file))
            if not _meet(keys, rows):
                return False
        return True


def _meet(left: ValueRange, right: ValueRange) -> bool:
    if isinstance(left.type, FloatType | DoubleType | UUIDType):
        # NaN is in no bounds, and writers disagree on the order of uuids.
        return True
    if left.may_be_null and right.may_be_null:
        return True
    for below, above in ((left, right), (right, left)):
        if below.upper is not None and above.lower is not None and below.upper < above.lower:
            return False
    return True
