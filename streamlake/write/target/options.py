"""Write options: the table properties `write.*` and `streamlake.write.*`, parsed once into a frozen value.

Made on the driver by `WriteTarget.for_table`, sent to executors inside the target. A table may hold any other
property; under `streamlake.write.` an unknown name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import InvalidOptionError
from streamlake.formats.data_files import FILE_FORMATS, FormatOptions
from streamlake.options import Property, bool_property, check_option_names, int_property
from streamlake.storage.durability import FSYNC

FILE_FORMAT = "write.format.default"
TARGET_FILE_SIZE = "write.target-file-size-bytes"
DELETE_FILE_FORMAT = "write.delete.format.default"
DISTRIBUTION_MODE = "write.distribution-mode"
DISTRIBUTION_MODES = ("none", "hash", "range")
DELETE_TARGET_FILE_SIZE = "write.delete.target-file-size-bytes"
DELETE_GRANULARITY = "write.delete.granularity"
PER_FILE, PER_PARTITION = "file", "partition"
PREFIX = "streamlake.write."
MEMORY_BUDGET = "streamlake.write.memory-budget-bytes"
MAX_OPEN_FILES = "streamlake.write.max-open-files"

_MIB = 1024 * 1024
_GATHER_BYTES = 32 * _MIB
_SMALLEST_BUDGET = 1 * _MIB

PROPERTIES = (
    Property(FILE_FORMAT, "parquet", "The format of data files: `parquet`, `avro` or `orc`."),
    Property(TARGET_FILE_SIZE, "536870912", "How large a data file becomes before the next one is started."),
    Property(
        DISTRIBUTION_MODE,
        "`range` with a sort order, `hash` with partitions, else `none`",
        "How rows of a DataFrame reach the writing tasks: `none`, `hash` (by partition) or `range` (by sort "
        "order).",
    ),
    Property(DELETE_FILE_FORMAT, "that of data files", "The format of position and equality delete files."),
    Property(
        DELETE_TARGET_FILE_SIZE, "67108864", "How large a delete file becomes before the next one is started."
    ),
    Property(
        DELETE_GRANULARITY,
        PER_FILE,
        "Format version 2: a position delete file is for one data file (`file`) or for a partition "
        "(`partition`).",
    ),
    Property(MEMORY_BUDGET, "268435456", "How many bytes of rows one writing task holds at most."),
    Property(MAX_OPEN_FILES, "100", "How many files one task writes at the same time."),
)


@dataclass(frozen=True)
class DeleteOptions:
    """Settings of position and equality delete files. Defaults are the settings of data files.

    With `granularity` "file", a position delete file holds the positions of one data file; with "partition",
    those of many data files of a partition.
    """

    file_format: str = "parquet"
    target_file_size_bytes: int = 64 * _MIB
    granularity: str = PER_FILE
    format: FormatOptions = field(default_factory=FormatOptions)

    def __post_init__(self) -> None:
        if self.granularity not in (PER_FILE, PER_PARTITION):
            raise InvalidOptionError(
                f"table property {DELETE_GRANULARITY}={self.granularity!r} is not known; use {PER_FILE} or "
                f"{PER_PARTITION}"
            )

    @staticmethod
    def from_properties(
        properties: Mapping[str, str], file_format: str, data: FormatOptions
    ) -> DeleteOptions:
        """Parse `write.delete.*`; `file_format` and `data` are those of data files."""
        return DeleteOptions(
            file_format=_file_format(properties, DELETE_FILE_FORMAT, file_format),
            target_file_size_bytes=int_property(properties, DELETE_TARGET_FILE_SIZE, 64 * _MIB, minimum=1),
            granularity=str(properties.get(DELETE_GRANULARITY, PER_FILE)).strip().lower(),
            format=FormatOptions.from_properties(properties, "write.delete", data),
        )


@dataclass(frozen=True)
class WriteOptions:
    """Settings of one writer task; sizes in bytes.

    `memory_budget_bytes` bounds the Arrow rows that one task holds, and `max_open_files`
    the files that it writes at once.
    """

    file_format: str = "parquet"
    target_file_size_bytes: int = 512 * _MIB
    memory_budget_bytes: int = 256 * _MIB
    max_open_files: int = 100
    format: FormatOptions = field(default_factory=FormatOptions)
    delete: DeleteOptions = field(default_factory=DeleteOptions)

    @property
    def gather_bytes(self) -> int:
        """How many bytes of small Arrow batches are gathered into one table before they are processed."""
        return min(_GATHER_BYTES, self.memory_budget_bytes // 8)

    @property
    def buffer_bytes(self) -> int:
        """The part of the budget for rows that wait for their file.

        Gathered rows exist twice while they move.
        """
        return self.memory_budget_bytes - 2 * self.gather_bytes

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> WriteOptions:
        """Parse table properties. Raises InvalidOptionError, which names the property."""
        check_option_names(
            (key for key in properties if key.startswith(PREFIX)),
            (MEMORY_BUDGET, MAX_OPEN_FILES, FSYNC),
            "table property",
        )
        bool_property(properties, FSYNC, True)  # read by the code that opens the table's storage
        file_format = _file_format(properties, FILE_FORMAT, "parquet")
        format_options = FormatOptions.from_properties(properties)
        return WriteOptions(
            file_format=file_format,
            target_file_size_bytes=int_property(properties, TARGET_FILE_SIZE, 512 * _MIB, minimum=1),
            memory_budget_bytes=int_property(properties, MEMORY_BUDGET, 256 * _MIB, minimum=_SMALLEST_BUDGET),
            max_open_files=int_property(properties, MAX_OPEN_FILES, 100, minimum=1),
            format=format_options,
            delete=DeleteOptions.from_properties(properties, file_format, format_options),
        )


def _file_format(properties: Mapping[str, str], key: str, default: str) -> str:
    file_format = str(properties.get(key, default)).strip().lower()
    if file_format not in FILE_FORMATS:
        raise InvalidOptionError(
            f"table property {key}={file_format!r} is not a file format; use {', '.join(FILE_FORMATS)}"
        )
    return file_format
