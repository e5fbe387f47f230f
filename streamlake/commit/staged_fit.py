"""Checks whether a staged checkpoint still fits its table, before it is committed.

Others may have changed the table since: expiring metadata removes unused partition specs, an orphan removal
may delete files that no snapshot has yet, and another pipeline may have brought in a second source, so that a
truncate would delete too much. Invariant: what no longer fits is never committed. Spark writes the checkpoint
again where it still has the rows; otherwise the stream stops with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.staged_extra import TableThen
from streamlake.decode.cdc.source_tables import PROPERTY, kept_sources
from streamlake.errors import MissingFileError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table

_THREADS = 16


def table_then(metadata: TableMetadata, manifests: Iterable[ManifestFile]) -> TableThen:
    """The table with this metadata, for a checkpoint that is staged now with these manifests."""
    ids = sorted({manifest.partition_spec_id for manifest in manifests})
    return TableThen(metadata.last_sequence_number, tuple(map(metadata.spec_by_id, ids)))


def mismatch(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why a staged checkpoint does not fit a table with this metadata; None where it fits.

    Files are not looked for.
    """
    return (
        spec_mismatch(metadata, committable)
        or equality_mismatch(metadata, committable)
        or source_mismatch(metadata, committable)
    )


def source_mismatch(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why a staged checkpoint's truncate may delete rows of another source; None where it cannot.

    Another pipeline may have brought a second source into the table since the truncate was read.
    """
    if committable.extra.truncated_below is None:
        return None
    sources = kept_sources(metadata.properties, metadata.location)
    names = sorted({name or f"topic {topic}" for topic, name in sources.items()})
    if len(names) < 2:
        return None
    return (
        f"it truncates the table, which has changes of {' and '.join(names)} now (table property "
        f"{PROPERTY}), and their logs cannot be compared"
    )


def spec_mismatch(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why the table cannot interpret the partition values of a staged checkpoint; None where it can."""
    then = committable.extra.table or TableThen()
    staged = {spec.spec_id: spec for spec in then.specs}
    for spec_id in sorted({manifest.partition_spec_id for manifest in committable.manifests}):
        found = metadata.specs_by_id.get(spec_id)
        if found is None:
            return (
                f"its files are of partition spec {spec_id}, which the table no longer has (it was removed "
                "as unused)"
            )
        if spec_id in staged and staged[spec_id] != found:
            return f"its files are of another partition spec than the one that has the id {spec_id} now"
    return None


def equality_mismatch(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why the equality deletes of a staged checkpoint may miss rows of the table; None where they cannot.

    An equality delete of a partitioned spec reaches rows of its own partition only (spec: Scan Planning). So
    it is written where the table has one spec, and is committed while that is so.
    """
    deletes = {
        manifest.partition_spec_id
        for manifest in committable.manifests
        if manifest.content is ManifestContent.DELETES
    }
    if committable.index_state is not None or not deletes:
        return None  # positions are resolved for the head that they are committed onto
    specs = metadata.specs_by_id
    others = sorted(set(specs) - deletes)
    if not others or all(specs[spec_id].is_unpartitioned for spec_id in deletes):
        return None
    return (
        "the table has been partitioned otherwise since, and its equality deletes reach only rows of "
        f"partition spec {min(deletes)}, not those of {', '.join(map(str, others))}"
    )


def missing_file(table: Table, committable: Committable) -> str | None:
    """A file of a staged checkpoint that does not exist, such as a deleted orphan; None where all exist."""
    try:
        paths = [*_data_paths(table, committable), *committable.runs]
    except MissingFileError:
        return _first_missing(table, [manifest.manifest_path for manifest in committable.manifests])
    if committable.index_state is not None:
        paths.append(committable.index_state)
    return _first_missing(table, paths)


def _data_paths(table: Table, committable: Committable) -> Iterator[str]:
    for manifest in committable.manifests:
        entries = read_manifest(table.io, manifest, table.specs, with_stats=False)
        yield from dict.fromkeys(entry.data_file.file_path for entry in entries)


def _first_missing(table: Table, paths: list[str]) -> str | None:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="streamlake-staged") as pool:
        there = list(pool.map(table.io.exists, paths))
    return next((path for path, found in zip(paths, there, strict=True) if not found), None)
