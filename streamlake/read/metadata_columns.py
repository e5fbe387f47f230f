"""Metadata columns that a scan adds to a row on request (spec: Reserved Field IDs, Row Lineage)."""

from __future__ import annotations

from streamlake.formats.columns.lineage_columns import (
    FILE_PATH,
    LAST_UPDATED_SEQUENCE_NUMBER,
    ROW_ID,
    ROW_POSITION,
)
from streamlake.spec.types.data_types import IntegerType, NestedField

SPEC_ID = NestedField(2147483643, "_spec_id", IntegerType(), required=True)
LINEAGE = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER)
BY_NAME = {
    column.name: column for column in (FILE_PATH, ROW_POSITION, SPEC_ID, ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER)
}
