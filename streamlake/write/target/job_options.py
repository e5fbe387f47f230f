"""Options of one write job: `write_options` and `write_parallelism` of its sink.

They override the table's properties. Names are those of Iceberg's sinks for Spark and Flink
(SparkWriteOptions, FlinkWriteOptions). On the driver each becomes the table property that it stands for, so
writers know only properties. Invariant: the table's own properties do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.formats.columns.format_options import AVRO_CODECS, ORC_CODECS, PARQUET_CODECS, FormatOptions
from streamlake.formats.data_files import FILE_FORMATS
from streamlake.options import suggestion, unknown_option
from streamlake.write.target.options import (
    DELETE_FILE_FORMAT,
    DELETE_TARGET_FILE_SIZE,
    DISTRIBUTION_MODE,
    DISTRIBUTION_MODES,
    FILE_FORMAT,
    TARGET_FILE_SIZE,
    WriteOptions,
)

_WHERE = "write_options"
_CODEC, _LEVEL, _STRATEGY = "compression-codec", "compression-level", "compression-strategy"
_PROPERTIES = {
    "write-format": FILE_FORMAT,
    "target-file-size-bytes": TARGET_FILE_SIZE,
    "delete-format": DELETE_FILE_FORMAT,
    "target-delete-file-size-bytes": DELETE_TARGET_FILE_SIZE,
    "distribution-mode": DISTRIBUTION_MODE,
}
_FORMATS = {_CODEC: FILE_FORMATS, _LEVEL: ("parquet", "avro"), _STRATEGY: ("orc",)}
"""The file formats that each compression option applies to."""
_SAME_CODECS = ("none", "deflate", "uncompressed")
_VALUES = {
    "write-format": FILE_FORMATS,
    "delete-format": FILE_FORMATS,
    "distribution-mode": DISTRIBUTION_MODES,
    _STRATEGY: ("speed", "compression"),
    _CODEC: tuple(dict.fromkeys((*PARQUET_CODECS, *AVRO_CODECS, *ORC_CODECS, *_SAME_CODECS))),
}
_SIZES = ("target-file-size-bytes", "target-delete-file-size-bytes")
_ELSEWHERE = {
    "branch": "the sink's argument branch",
    "write-parallelism": "the sink's argument write_parallelism",
    "upsert-enabled": "the sink's argument mode: 'upsert'",
    "overwrite-enabled": "the sink's argument mode: 'overwrite'",
    "overwrite-mode": "the sink's argument mode: 'overwrite' or 'dynamic-overwrite'",
    **{name: f"'{option}' here" for option, name in _PROPERTIES.items()},
    **{
        f"write.{each}.{option}": f"'{option}' here"
        for option, formats in _FORMATS.items()
        for each in formats
    },
}
"""What Iceberg's sinks, or tables, call by other names."""
WRITE_OPTIONS = (*_PROPERTIES, *_FORMATS)


@dataclass(frozen=True)
class JobOptions:
    """The options of one write job.

    `options` are as given, checked as far as possible without a table. `parallelism` is the number of writing
    tasks (None: as many as there are anyway).
    """

    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None

    @staticmethod
    def of(options: Mapping[str, Any] | None, parallelism: int | None) -> JobOptions:
        """The options as given.

        Raises InvalidOptionError for an unknown option, and for a value that it cannot have.
        """
        given = {str(name): str(value).strip() for name, value in (options or {}).items()}
        check_write_options(given)
        for name, value in given.items():
            _check_value(name, value)
        if parallelism is not None and (isinstance(parallelism, bool) or int(parallelism) < 1):
            raise InvalidOptionError(f"write_parallelism is {parallelism}; it must be at least 1")
        return JobOptions(given, parallelism)

    def overrides(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The table properties that stand for the options, for a table with `properties`.

        Compression options are for the format of data files, and for delete files of the same format. Raises
        InvalidOptionError for one that does not apply to this format.
        """
        given = self.options
        found = {_PROPERTIES[name]: value for name, value in given.items() if name in _PROPERTIES}
        compression = {name: value for name, value in given.items() if name in _FORMATS}
        if not compression:
            return found
        file_format = {**properties, **found}.get(FILE_FORMAT, "parquet").strip().lower()
        for name in compression:
            if file_format in FILE_FORMATS and file_format not in _FORMATS[name]:
                raise InvalidOptionError(
                    f"{_WHERE}: {name} means nothing to {file_format} files, only to "
                    f"{', '.join(_FORMATS[name])}; leave it out"
                )
        for prefix in (f"write.{file_format}", f"write.delete.{file_format}"):
            if _CODEC in given and _LEVEL not in given and file_format in _FORMATS[_LEVEL]:
                found.update(_without_level(properties, prefix, file_format, given[_CODEC]))
            found.update({f"{prefix}.{name}": value for name, value in compression.items()})
        return found

    def check(self, properties: Mapping[str, str]) -> None:
        """Check the options against a table with valid `properties`.

        Raises InvalidOptionError where they do not fit.
        """
        merged = {**properties, **self.overrides(properties)}
        try:
            options = WriteOptions.from_properties(merged)
        except InvalidOptionError as error:
            if not self.options:
                raise
            raise InvalidOptionError(f"{_WHERE} {', '.join(self.options)}: {error}") from error
        if _LEVEL in self.options and options.file_format == "parquet":
            _check_level(options.format.parquet_codec, options.format.parquet_compression_level)


AS_THE_TABLE = JobOptions()


def check_write_options(names: Iterable[str], where: str = _WHERE) -> None:
    """Raises InvalidOptionError for the first name that is not one of WRITE_OPTIONS."""
    for name in names:
        if name in _ELSEWHERE:
            raise InvalidOptionError(f"{where}: unknown option '{name}'; it is {_ELSEWHERE[name]}")
        if name not in WRITE_OPTIONS:
            raise unknown_option(name, WRITE_OPTIONS, where)


def _check_value(name: str, value: str) -> None:
    known = _VALUES.get(name)
    if known is not None and value.lower() not in known:
        near = suggestion(value, known)
        hint = f". Did you mean '{near}'?" if near else ""
        raise InvalidOptionError(
            f"{_WHERE}: {name} '{value}' is not known; it can be {', '.join(known)}{hint}"
        )
    if name not in _SIZES and name != _LEVEL:
        return
    try:
        number = int(value)
    except ValueError:
        raise InvalidOptionError(f"{_WHERE}: {name} '{value}' is not a whole number") from None
    if name in _SIZES and number < 1:
        raise InvalidOptionError(f"{_WHERE}: {name} is {number}; it must be at least 1")


def _without_level(
    properties: Mapping[str, str], prefix: str, file_format: str, codec: str
) -> dict[str, str]:
    """Removes the table's compression level where the job sets another codec.

    A level belongs to its codec.
    """
    defaults = FormatOptions()
    default = defaults.parquet_codec if file_format == "parquet" else defaults.avro_compression.codec
    default = properties.get(f"write.{file_format}.{_CODEC}", default)
    own = properties.get(f"{prefix}.{_CODEC}", default)
    return {} if own.strip().lower() == codec.lower() else {f"{prefix}.{_LEVEL}": "null"}


def _check_level(codec: str, level: int | None) -> None:
    """For Parquet files alone: for Avro the property itself is checked."""
    if level is None:
        return
    if codec in ("snappy", "uncompressed"):
        raise InvalidOptionError(
            f"{_WHERE}: {_LEVEL} means nothing to the codec {codec}; leave it out, or name another {_CODEC}"
        )
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if not lowest <= level <= highest:
        raise InvalidOptionError(f"{_WHERE}: {_LEVEL} is {level}; those of {codec} are {lowest} to {highest}")
