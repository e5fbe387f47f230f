"""What lies in a table's directory, and what of it nothing refers to: the account of orphans."""

from __future__ import annotations

from pathlib import Path

from streamlake.checkpoint.store import staged_by_all_jobs
from streamlake.errors import MissingFileError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.pipeline.key_index.index_files import load_state
from streamlake.pipeline.key_index.index_states import branches, named_states
from streamlake.table.table import Table

DATA, MANIFEST, LIST, INDEX, TEMPORARY, OTHER = (
    "data",
    "manifest",
    "manifest list",
    "index",
    "temporary",
    "other",
)


def written_files(location: Path) -> set[str]:
    """Paths of all files below a table's directory, relative to it; Java's checksums are left out."""
    return {
        path.relative_to(location).as_posix()
        for path in location.rglob("*")
        if path.is_file() and not (path.name.startswith(".") and path.name.endswith(".crc"))
    }


def kind_of(path: str) -> str:
    """What a file is, by its path below the table's directory."""
    name = path.rpartition("/")[2]
    if name.endswith(".tmp"):
        return TEMPORARY
    if path.startswith("data/"):
        return DATA
    if path.startswith("metadata/_index/"):
        return INDEX
    if name.startswith("snap-"):
        return LIST
    return MANIFEST if name.endswith(".avro") else OTHER


def referenced_files(table: Table, location: Path) -> set[str]:
    """Files that some snapshot, some version of the metadata, or something that is staged refers to."""
    found: set[str] = set()
    for snapshot in table.snapshots:
        found.add(str(snapshot.manifest_list))
        for manifest in table.manifests(snapshot):
            found.add(manifest.manifest_path)
            entries = read_manifest(table.io, manifest, table.specs)
            found.update(entry.data_file.file_path for entry in entries)
    states = {
        each.path for branch in branches(table.metadata) for each in named_states(table.metadata, branch)
    }
    for committable in staged_by_all_jobs(table.io, table.locations):
        found.update(manifest.manifest_path for manifest in committable.manifests)
        found.update(committable.runs)
        if committable.index_state:
            states.add(committable.index_state)
    for path in states:
        found.add(path)
        try:
            found.update(run.path for run in load_state(table, path).runs)
        except MissingFileError:
            continue
    relative = {_relative(path, location) for path in found}
    others = {path for path in written_files(location) if kind_of(path) == OTHER}
    return relative | others


def _relative(path: str, location: Path) -> str:
    return Path(path.removeprefix("file://")).relative_to(location).as_posix()
