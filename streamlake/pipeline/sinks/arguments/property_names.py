"""The names of table properties: which streamlake reads, which only other engines do, and which nobody.

A table may hold any property. In the namespaces of Iceberg and streamlake, a name that nobody reads is most
often a slip, so that a name close to a known one is refused where a table is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from streamlake.decode.cdc import source_tables
from streamlake.errors import InvalidOptionError
from streamlake.formats.columns import format_options, metrics_config, name_mapping
from streamlake.maintain import rejects_retention, retention, row_deletion
from streamlake.maintain.background import lease
from streamlake.options import suggestion
from streamlake.pipeline.runs import commit_queue, evolution, upsert_options
from streamlake.storage import durability, locations
from streamlake.table import options as table_options
from streamlake.write.target import options as write_options

_MODULES = (
    write_options,
    format_options,
    durability,
    locations,
    metrics_config,
    name_mapping,
    table_options,
    commit_queue,
    upsert_options,
    source_tables,
    evolution,
    retention,
    lease,
    rejects_retention,
    row_deletion,
)
_NAMESPACES = ("write.", "commit.", "read.", "history.", "schema.", "compatibility.", "streamlake.")
_WRITTEN = ("streamlake.pipeline.", "streamlake.index-state.")
_FORMATS = ("write.parquet.", "write.avro.", "write.orc.")
_IS_A_SLIP = 0.85
"""How much of two names is the same where one is taken for the other, misspelt."""

OF_OTHERS = (
    *(
        f"write.{kind}parquet.{name}"
        for kind in ("", "delete.")
        for name in (
            "row-group-check-min-record-count",
            "row-group-check-max-record-count",
            "bloom-filter-max-bytes",
            "bloom-filter-enabled.column.<column>",
            "bloom-filter-fpp.column.<column>",
            "stats-enabled.column.<column>",
            "page-version",
            "shred-variants",
            "variant-inference-buffer-size",
        )
    ),
    *(
        f"write.{kind}orc.{name}"
        for kind in ("", "delete.")
        for name in ("block-size-bytes", "vectorized.batch-size", "bloom.filter.columns", "bloom.filter.fpp")
    ),
    *(
        f"write.{command}.{name}"
        for command in ("update", "merge")
        for name in ("mode", "isolation-level", "distribution-mode")
    ),
    "write.delete.distribution-mode",
    "write.spark.fanout.enabled",
    "write.spark.accept-any-schema",
    "write.spark.advisory-partition-size-bytes",
    "write.upsert.enabled",
    "write.wap.enabled",
    "write.manifest-lists.enabled",
    "write.object-storage.path",
    "write.folder-storage.path",
    "read.split.target-size",
    "read.split.metadata-target-size",
    "read.split.planning-lookback",
    "read.split.open-file-cost",
    "read.split.adaptive-size.enabled",
    "read.parquet.vectorization.enabled",
    "read.parquet.vectorization.batch-size",
    "read.orc.vectorization.enabled",
    "read.orc.vectorization.batch-size",
    "read.data-planning-mode",
    "read.delete-planning-mode",
    "engine.hive.enabled",
    "engine.hive.lock-enabled",
    "flink.max-continuous-empty-commits",
    "compatibility.snapshot-id-inheritance.enabled",
    "encryption.key-id",
    "encryption.data-key-length",
)
"""Iceberg's table properties that streamlake does not read."""


@dataclass(frozen=True)
class PropertyNames:
    """Some properties' names, sorted by who reads them.

    `misspelt` maps a name that nobody reads to the one that is meant; `unknown` maps one to the nearest name,
    however far it is ("": none is near). `of_others` are Iceberg's, which other engines read.
    """

    misspelt: Mapping[str, str]
    unknown: Mapping[str, str]
    of_others: Sequence[str]

    @staticmethod
    def of(names: Iterable[str]) -> PropertyNames:
        """Sort the names; those outside of the namespaces of Iceberg and streamlake are anybody's."""
        misspelt: dict[str, str] = {}
        unknown: dict[str, str] = {}
        others: list[str] = []
        for name in map(str, names):
            if _is_one_of(name, OF_OTHERS):
                others.append(name)
            elif (
                name.startswith(_NAMESPACES) and not _is_one_of(name, _READ) and not name.startswith(_WRITTEN)
            ):
                near = suggestion(name, (*_READ, *OF_OTHERS))
                is_slip = SequenceMatcher(None, name.lower(), near).ratio() >= _IS_A_SLIP
                (misspelt if is_slip else unknown)[name] = near
        return PropertyNames(misspelt, unknown, tuple(others))


def require_definition(
    properties: Mapping[str, str] | None,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    format_version: int | None,
    *,
    create: bool,
) -> None:
    """Raise InvalidOptionError where a sink describes a table that it does not create, or with a property
    whose name is misspelt.
    """
    if not create and (partition_by or sort_by or format_version is not None or properties):
        raise InvalidOptionError(
            "partition_by, sort_by, format_version and properties describe a table that is created; "
            "pass create=True as well, or change the existing table instead"
        )
    for name, near in PropertyNames.of(properties or ()).misspelt.items():
        raise InvalidOptionError(misspelt_text(name, near))


def misspelt_text(name: str, near: str) -> str:
    """The sentence about a property whose name is misspelt."""
    return f"there is no table property '{name}'; did you mean '{near}'?"


def _is_one_of(name: str, known: Iterable[str]) -> bool:
    return any(
        name == each or (each.endswith("<column>") and name.startswith(each.removesuffix("<column>")))
        for each in known
    )


def _read() -> tuple[str, ...]:
    """The properties that streamlake reads, with those of delete files."""
    names = [each.name for module in _MODULES for each in module.PROPERTIES]
    deletes = [name.replace("write.", "write.delete.", 1) for name in names if name.startswith(_FORMATS)]
    return (*names, *deletes)


_READ = _read()
