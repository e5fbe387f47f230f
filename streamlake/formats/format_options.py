"""How data files and manifests are written: the table properties `write.<format>.*`, parsed once into frozen values.

Made on the driver from the table's properties, carried to executors inside the write target, read by the writers
of this room. Names are Iceberg's; a property of Iceberg's that has no meaning here is left alone, a value that
makes no sense is an InvalidOptionError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import InvalidOptionError
from streamlake.formats.metrics_config import MetricsOptions
from streamlake.options import int_property

PARQUET_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
AVRO_CODECS = ("gzip", "zstd", "snappy", "uncompressed")
ORC_CODECS = ("zlib", "zstd", "snappy", "lz4", "none")
PARQUET_ENCODINGS = ("auto", "plain")

_MIB = 1024 * 1024
_AVRO_LEVELS = {"gzip": (-1, 9), "zstd": (-131072, 22)}


@dataclass(frozen=True)
class AvroCompression:
    """How the blocks of Avro files are compressed; `level` None means the codec's own default."""

    codec: str = "gzip"
    level: int | None = None

    @staticmethod
    def from_properties(properties: Mapping[str, str], prefix: str) -> AvroCompression:
        """Parse `<prefix>.compression-codec` and `<prefix>.compression-level`, of `write.avro` or `write.manifest`.

        A level means nothing to a codec without levels. Raises InvalidOptionError for a value that makes no sense.
        """
        codec = _codec(properties, f"{prefix}.compression-codec", "gzip", AVRO_CODECS)
        if codec not in _AVRO_LEVELS:
            return AvroCompression(codec)
        key, (lowest, highest) = f"{prefix}.compression-level", _AVRO_LEVELS[codec]
        level = _level(properties, key, lowest)
        if level is not None and level > highest:
            raise InvalidOptionError(
                f"table property {key}={level} is above {highest}, the highest level of {codec}; lower it or unset it"
            )
        return AvroCompression(codec, level)


@dataclass(frozen=True)
class FormatOptions:
    """Settings of all three file formats; sizes in bytes.

    `parquet_compression_level` None means the level that measures best (zstd: 1). `parquet_encodings` "plain"
    forgoes delta encodings, for readers that predate them (Iceberg's vectorised reader before 1.10).
    """

    parquet_codec: str = "zstd"
    parquet_compression_level: int | None = None
    parquet_row_group_size_bytes: int = 128 * _MIB
    parquet_page_size_bytes: int = _MIB
    parquet_page_row_limit: int = 20_000
    parquet_dict_size_bytes: int = 2 * _MIB
    parquet_encodings: str = "auto"
    avro_compression: AvroCompression = field(default_factory=AvroCompression)
    orc_codec: str = "zlib"
    orc_stripe_size_bytes: int = 64 * _MIB
    orc_compression_strategy: str = "speed"
    metrics: MetricsOptions = field(default_factory=MetricsOptions)

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> FormatOptions:
        """Parse Iceberg's table properties. Raises InvalidOptionError for a value that makes no sense."""
        return FormatOptions(
            parquet_codec=_codec(properties, "write.parquet.compression-codec", "zstd", PARQUET_CODECS),
            parquet_compression_level=_level(properties, "write.parquet.compression-level", -131072),
            parquet_row_group_size_bytes=_size(properties, "write.parquet.row-group-size-bytes", 128 * _MIB),
            parquet_page_size_bytes=_size(properties, "write.parquet.page-size-bytes", _MIB),
            parquet_page_row_limit=_size(properties, "write.parquet.page-row-limit", 20_000),
            parquet_dict_size_bytes=_size(properties, "write.parquet.dict-size-bytes", 2 * _MIB),
            parquet_encodings=_codec(properties, "streamlake.parquet.encodings", "auto", PARQUET_ENCODINGS),
            avro_compression=AvroCompression.from_properties(properties, "write.avro"),
            orc_codec=_codec(properties, "write.orc.compression-codec", "zlib", ORC_CODECS),
            orc_stripe_size_bytes=_size(properties, "write.orc.stripe-size-bytes", 64 * _MIB),
            orc_compression_strategy=_codec(
                properties, "write.orc.compression-strategy", "speed", ("speed", "compression")
            ),
            metrics=MetricsOptions.from_properties(properties),
        )


def _codec(properties: Mapping[str, str], key: str, default: str, known: tuple[str, ...]) -> str:
    value = str(properties.get(key, default)).strip().lower()
    value = {"none": "uncompressed", "deflate": "gzip"}.get(value, value) if "none" not in known else value
    if value not in known:
        raise InvalidOptionError(
            f"table property {key}={value!r} is not supported; use one of {', '.join(known)}"
        )
    return value


def _level(properties: Mapping[str, str], key: str, minimum: int) -> int | None:
    unset = str(properties.get(key, "null")).strip().lower() == "null"
    return None if unset else int_property(properties, key, 0, minimum=minimum)


def _size(properties: Mapping[str, str], key: str, default: int) -> int:
    return int_property(properties, key, default, minimum=1)
