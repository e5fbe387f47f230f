"""How a task writes: table properties `write.*` and `streamlake.write.*`, parsed once into a frozen value.

Made on the driver by `WriteTarget.for_table`, carried to executors inside the target. A table may hold any other
property; under `streamlake.write.` an unknown name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import InvalidOptionError
from streamlake.formats.data_files import FILE_FORMATS, FormatOptions
from streamlake.options import check_option_names, int_property

FILE_FORMAT = "write.format.default"
TARGET_FILE_SIZE = "write.target-file-size-bytes"
PREFIX = "streamlake.write."
MEMORY_BUDGET = "streamlake.write.memory-budget-bytes"
MAX_OPEN_FILES = "streamlake.write.max-open-files"

_MIB = 1024 * 1024
_GATHER_BYTES = 32 * _MIB
_SMALLEST_BUDGET = 1 * _MIB


@dataclass(frozen=True)
class WriteOptions:
    """Settings of one writer task; sizes in bytes.

    `memory_budget_bytes` bounds the Arrow rows that one task holds; `max_open_files` the files it writes at once.
    """

    file_format: str = "parquet"
    target_file_size_bytes: int = 512 * _MIB
    memory_budget_bytes: int = 256 * _MIB
    max_open_files: int = 100
    format: FormatOptions = field(default_factory=FormatOptions)

    @property
    def gather_bytes(self) -> int:
        """How many bytes of small Arrow batches are gathered before they are worked on together."""
        return min(_GATHER_BYTES, self.memory_budget_bytes // 8)

    @property
    def buffer_bytes(self) -> int:
        """What of the budget is left for rows that wait for their file: gathered rows exist twice while they move."""
        return self.memory_budget_bytes - 2 * self.gather_bytes

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> WriteOptions:
        """Parse table properties. Raises InvalidOptionError that names the property."""
        check_option_names(
            (key for key in properties if key.startswith(PREFIX)),
            (MEMORY_BUDGET, MAX_OPEN_FILES),
            "table property",
        )
        file_format = str(properties.get(FILE_FORMAT, "parquet")).strip().lower()
        if file_format not in FILE_FORMATS:
            raise InvalidOptionError(
                f"table property {FILE_FORMAT}={file_format!r} is not a file format; use {', '.join(FILE_FORMATS)}"
            )
        return WriteOptions(
            file_format=file_format,
            target_file_size_bytes=int_property(properties, TARGET_FILE_SIZE, 512 * _MIB, minimum=1),
            memory_budget_bytes=int_property(properties, MEMORY_BUDGET, 256 * _MIB, minimum=_SMALLEST_BUDGET),
            max_open_files=int_property(properties, MAX_OPEN_FILES, 100, minimum=1),
            format=FormatOptions.from_properties(properties),
        )
