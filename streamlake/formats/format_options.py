"""How files and manifests are written: the table properties `write.<format>.*`, and `write.delete.<format>.*` where
delete files differ, parsed once into frozen values.

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
    def from_properties(
        properties: Mapping[str, str], prefix: str, defaults: AvroCompression | None = None
    ) -> AvroCompression:
        """Parse `<prefix>.compression-codec` and `<prefix>.compression-level`, of `write.avro` or `write.manifest`.

        A level means nothing to a codec without levels, and the level of `defaults` nothing to another codec. Raises
        InvalidOptionError for a value that makes no sense.
        """
        defaults = defaults or AvroCompression()
        codec = _codec(properties, f"{prefix}.compression-codec", defaults.codec, AVRO_CODECS)
        if codec not in _AVRO_LEVELS:
            return AvroCompression(codec)
        key, (lowest, highest) = f"{prefix}.compression-level", _AVRO_LEVELS[codec]
        level = _level(properties, key, lowest, defaults.level if codec == defaults.codec else None)
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
    def from_properties(
        properties: Mapping[str, str], prefix: str = "write", defaults: FormatOptions | None = None
    ) -> FormatOptions:
        """Parse Iceberg's table properties `<prefix>.<format>.*`. What they leave open is as in `defaults`.

        Raises InvalidOptionError for a value that makes no sense.
        """
        base = defaults or FormatOptions()
        codec = _codec(properties, f"{prefix}.parquet.compression-codec", base.parquet_codec, PARQUET_CODECS)
        level = base.parquet_compression_level if codec == base.parquet_codec else None

        def size(name: str, default: int) -> int:
            return int_property(properties, f"{prefix}.{name}", default, minimum=1)

        return FormatOptions(
            parquet_codec=codec,
            parquet_compression_level=_level(
                properties, f"{prefix}.parquet.compression-level", -131072, level
            ),
            parquet_row_group_size_bytes=size(
                "parquet.row-group-size-bytes", base.parquet_row_group_size_bytes
            ),
            parquet_page_size_bytes=size("parquet.page-size-bytes", base.parquet_page_size_bytes),
            parquet_page_row_limit=size("parquet.page-row-limit", base.parquet_page_row_limit),
            parquet_dict_size_bytes=size("parquet.dict-size-bytes", base.parquet_dict_size_bytes),
            parquet_encodings=_codec(
                properties, "streamlake.parquet.encodings", base.parquet_encodings, PARQUET_ENCODINGS
            ),
            avro_compression=AvroCompression.from_properties(
                properties, f"{prefix}.avro", base.avro_compression
            ),
            orc_codec=_codec(properties, f"{prefix}.orc.compression-codec", base.orc_codec, ORC_CODECS),
            orc_stripe_size_bytes=size("orc.stripe-size-bytes", base.orc_stripe_size_bytes),
            orc_compression_strategy=_codec(
                properties,
                f"{prefix}.orc.compression-strategy",
                base.orc_compression_strategy,
                ("speed", "compression"),
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


def _level(properties: Mapping[str, str], key: str, minimum: int, default: int | None = None) -> int | None:
    text = properties.get(key)
    if text is None:
        return default
    return None if str(text).strip().lower() == "null" else int_property(properties, key, 0, minimum=minimum)
