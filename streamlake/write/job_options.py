"""How one job writes: `write_options` and `write_parallelism` of its sink, over the properties of the table.

Names are those of Iceberg's sinks for Spark and Flink (SparkWriteOptions, FlinkWriteOptions). On the driver each becomes the table
property that it stands for, so that writers know of properties alone. Invariant: the table's own properties stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.formats.data_files import FILE_FORMATS
from streamlake.formats.format_options import AVRO_CODECS, ORC_CODECS, PARQUET_CODECS, FormatOptions
from streamlake.options import suggestion, unknown_option
from streamlake.write.options import (
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
"""Which formats a compression option means something to."""
_CODECS = {"parquet": PARQUET_CODECS, "avro": AVRO_CODECS, "orc": ORC_CODECS}
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
"""What Iceberg's sinks, or tables, know by other names."""
WRITE_OPTIONS = (*_PROPERTIES, *_FORMATS)


@dataclass(frozen=True)
class JobOptions:
    """`options` as they were given, checked as far as they can be without a table; `parallelism` is how many tasks are to write
    (None: as many as there are anyway)."""

    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None

    @staticmethod
    def of(options: Mapping[str, Any] | None, parallelism: int | None) -> JobOptions:
        """Raises InvalidOptionError for an option that there is not, and for a value that it cannot have."""
        given = {str(name): str(value).strip() for name, value in (options or {}).items()}
        check_write_options(given)
        for name, value in given.items():
            _check_value(name, value)
        if parallelism is not None and (isinstance(parallelism, bool) or int(parallelism) < 1):
            raise InvalidOptionError(f"write_parallelism is {parallelism}; it must be at least 1")
        return JobOptions(given, parallelism)

    def overrides(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The table properties that stand for the options, for a table with `properties`. Those about compression are for the
        format of data files, and for delete files of the same format.

        Raises InvalidOptionError for one that means nothing to this format."""
        given = self.options
        found = {_PROPERTIES[name]: value for name, value in given.items() if name in _PROPERTIES}
        compression = {name: value for name, value in given.items() if name in _FORMATS}
        if not compression:
            return found
        file_format = {**properties, **found}.get(FILE_FORMAT, "parquet").strip().lower()
        for name in compression:
            if file_format in FILE_FORMATS and file_format not in _FORMATS[name]:
                raise InvalidOptionError(
                    f"{_WHERE}: {name} means nothing to {file_format} files, only to {', '.join(_FORMATS[name])}; leave it out"
                )
        for prefix in (f"write.{file_format}", f"write.delete.{file_format}"):
            if _CODEC in given and _LEVEL not in given and file_format in _FORMATS[_LEVEL]:
                found.update(_without_level(properties, prefix, file_format, given[_CODEC]))
            found.update({f"{prefix}.{name}": value for name, value in compression.items()})
        return found

    def check(self, properties: Mapping[str, str]) -> None:
        """Raises InvalidOptionError where the options make no sense for a table with `properties`, which make sense themselves."""
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
    """Raises InvalidOptionError for the first name that is none of WRITE_OPTIONS."""
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
    """The level that the table has for one codec says nothing about another."""
    defaults = FormatOptions()
    default = defaults.parquet_codec if file_format == "parquet" else defaults.avro_compression.codec
    default = properties.get(f"write.{file_format}.{_CODEC}", default)
    own = properties.get(f"{prefix}.{_CODEC}", default)
    return {} if own.strip().lower() == codec.lower() else {f"{prefix}.{_LEVEL}": "null"}


def _check_level(codec: str, level: int | None) -> None:
    """Parquet files alone: for Avro the property itself is checked."""
    if level is None:
        return
    if codec in ("snappy", "uncompressed"):
        raise InvalidOptionError(
            f"{_WHERE}: {_LEVEL} means nothing to the codec {codec}; leave it out, or name another {_CODEC}"
        )
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if not lowest <= level <= highest:
        raise InvalidOptionError(f"{_WHERE}: {_LEVEL} is {level}; those of {codec} are {lowest} to {highest}")
