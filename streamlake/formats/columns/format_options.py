"""Write options of file formats and manifests, parsed from table properties into frozen values.

The properties are `write.<format>.*`, and `write.delete.<format>.*` where delete files differ. The driver
parses them, the write target carries them to executors, and the writers of this package read them. Names are
Iceberg's. An Iceberg property that has no meaning here is ignored; an invalid value is an InvalidOptionError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import InvalidOptionError
from streamlake.formats.columns.metrics_config import MetricsOptions
from streamlake.options import Property, int_property

PARQUET_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
AVRO_CODECS = ("gzip", "zstd", "snappy", "uncompressed")
ORC_CODECS = ("zlib", "zstd", "snappy", "lz4", "none")
PARQUET_ENCODINGS = ("auto", "plain")

_MIB = 1024 * 1024
_AVRO_LEVELS = {"gzip": (-1, 9), "zstd": (-131072, 22)}
_ENCODINGS = "streamlake.parquet.encodings"

PROPERTIES = (
    Property("write.parquet.compression-codec", "zstd", f"One of {', '.join(PARQUET_CODECS)}."),
    Property(
        "write.parquet.compression-level",
        "1 for zstd",
        "The codec's level; `null` for the codec's own default.",
    ),
    Property("write.parquet.row-group-size-bytes", "134217728", "How large a row group becomes."),
    Property("write.parquet.page-size-bytes", "1048576", "How large a page becomes."),
    Property("write.parquet.page-row-limit", "20000", "How many rows a page has at most."),
    Property("write.parquet.dict-size-bytes", "2097152", "How large a column's dictionary may become."),
    Property(
        _ENCODINGS,
        "auto",
        "`plain` leaves out Parquet's delta encodings, for readers that do not know them.",
    ),
    Property("write.avro.compression-codec", "gzip", f"One of {', '.join(AVRO_CODECS)}."),
    Property("write.avro.compression-level", "", "The codec's level; unset: the codec's own default."),
    Property("write.orc.compression-codec", "zlib", f"One of {', '.join(ORC_CODECS)}."),
    Property("write.orc.compression-strategy", "speed", "`speed` or `compression`."),
    Property("write.orc.stripe-size-bytes", "67108864", "How large a stripe becomes."),
    Property("write.manifest.compression-codec", "gzip", "The codec of manifests, as for Avro."),
    Property("write.manifest.compression-level", "", "Its level; unset: the codec's own default."),
)
"""Those of Parquet, Avro and ORC also exist as `write.delete.<format>.*`, for delete files."""


@dataclass(frozen=True)
class AvroCompression:
    """Compression of the blocks of Avro files; `level` None means the codec's own default."""

    codec: str = "gzip"
    level: int | None = None

    @staticmethod
    def from_properties(
        properties: Mapping[str, str], prefix: str, defaults: AvroCompression | None = None
    ) -> AvroCompression:
        """Parse the properties `<prefix>.compression-codec` and `<prefix>.compression-level`.

        The prefix is `write.avro` or `write.manifest`. A level is ignored by codecs without levels; the level
        of `defaults` applies to its own codec only. Raises InvalidOptionError for an invalid value.
        """
        defaults = defaults or AvroCompression()
        codec = _codec(properties, f"{prefix}.compression-codec", defaults.codec, AVRO_CODECS)
        if codec not in _AVRO_LEVELS:
            return AvroCompression(codec)
        key, (lowest, highest) = f"{prefix}.compression-level", _AVRO_LEVELS[codec]
        level = _level(properties, key, lowest, defaults.level if codec == defaults.codec else None)
        if level is not None and level > highest:
            raise InvalidOptionError(
                f"table property {key}={level} is above {highest}, the highest level of {codec}; lower it or "
                "unset it"
            )
        return AvroCompression(codec, level)


@dataclass(frozen=True)
class FormatOptions:
    """Settings of all three file formats; sizes in bytes.

    `parquet_compression_level` None means the level that measures best (zstd: 1). `parquet_encodings` "plain"
    switches delta encodings off, for readers that predate them (Iceberg's vectorised reader before 1.10).
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
        """Parse Iceberg's table properties `<prefix>.<format>.*`; missing ones are taken from `defaults`.

        Raises InvalidOptionError for an invalid value.
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
            parquet_encodings=_codec(properties, _ENCODINGS, base.parquet_encodings, PARQUET_ENCODINGS),
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
