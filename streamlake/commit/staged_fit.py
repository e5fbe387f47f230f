"""Whether a staged checkpoint still fits its table: its partition specs are there as they were, so are its files, and where it
truncates, the table still has rows of one source only.

Asked before a commit. Others may have changed the table in between: expired metadata takes unused partition specs with it,
and an orphan removal may take files that no snapshot has yet. Invariant: what no longer fits is never committed; Spark
writes it again where it still has the rows, else the stream stops and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamlake.checkpoint.committable import Committable
from streamlake.decode.source_tables import PROPERTY, kept_sources
from streamlake.errors import MissingFileError
from streamlake.formats.manifests import read_manifest
from streamlake.spec.manifest import ManifestFile
from streamlake.spec.partition_spec import spec_from_json, spec_to_json
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.table import Table

STAGED_SPECS = "specs"
"""In a Committable's `extra`: the partition specs of its manifests, as in table metadata."""
TRUNCATED = "truncated-below"
"""In a Committable's `extra`: the place of its last truncate in the database's log."""
_THREADS = 16


def staged_specs(metadata: TableMetadata, manifests: Iterable[ManifestFile]) -> list[dict[str, Any]]:
    """What STAGED_SPECS says of these manifests."""
    return [
        spec_to_json(metadata.spec_by_id(spec_id))
        for spec_id in sorted({manifest.partition_spec_id for manifest in manifests})
    ]


def misfit(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why a staged checkpoint does not fit a table with this metadata; None: it does, if its files are there."""
    return spec_misfit(metadata, committable) or source_misfit(metadata, committable)


def source_misfit(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why the truncate of a staged checkpoint may delete what is not its own; None: it has none, or may not. Another pipeline may
    have brought a second source into the table since the truncate was read."""
    if committable.extra.get(TRUNCATED) is None:
        return None
    sources = kept_sources(metadata.properties, metadata.location)
    names = sorted({name or f"topic {topic}" for topic, name in sources.items()})
    if len(names) < 2:
        return None
    return (
        f"it truncates the table, which has changes of {' and '.join(names)} by now (table property {PROPERTY}), and their logs "
        "cannot be compared"
    )


def spec_misfit(metadata: TableMetadata, committable: Committable) -> str | None:
    """Why the partition values of a staged checkpoint's files mean nothing to this table; None: they do."""
    staged = {spec.spec_id: spec for spec in map(spec_from_json, committable.extra.get(STAGED_SPECS, ()))}
    for spec_id in sorted({manifest.partition_spec_id for manifest in committable.manifests}):
        found = metadata.specs_by_id.get(spec_id)
        if found is None:
            return f"its files are of partition spec {spec_id}, which the table no longer has (it was removed as unused)"
        if spec_id in staged and staged[spec_id] != found:
            return f"its files are of another partition spec than the one that has the id {spec_id} now"
    return None


def missing_file(table: Table, committable: Committable) -> str | None:
    """A file of a staged checkpoint that is not there, such as one that was deleted as an orphan; None: all are."""
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
