"""Paths of every file that a table writes.

The layout is that of Iceberg's HadoopTables (spec: Appendix F, Path Construction). Driver and executors build
paths here and nowhere else. Invariant: names are unique by uuid or by version number, so no file of a table
is ever written twice, except the version hint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.options import Property
from streamlake.spec.partitioning.transforms import murmur3_32

DATA_PATH = "write.data.path"
METADATA_PATH = "write.metadata.path"
OBJECT_STORAGE = "write.object-storage.enabled"
OBJECT_STORAGE_PARTITIONED = "write.object-storage.partitioned-paths"
LOCATION_PROVIDER = "write.location-provider.impl"
_REMOVED = ("write.object-storage.path", "write.folder-storage.path")
PROPERTIES = (
    Property(DATA_PATH, "<location>/data", "Where data files and delete files go."),
    Property(
        METADATA_PATH, "<location>/metadata", "Where manifests and metadata files go; not for Hadoop tables."
    ),
    Property(OBJECT_STORAGE, "false", "Whether hashed directories spread the files of an object store."),
    Property(OBJECT_STORAGE_PARTITIONED, "true", "Whether the partition is then part of the path as well."),
    Property(
        LOCATION_PROVIDER, "", "Names a Java class, which streamlake cannot run: such a table is refused."
    ),
)

POSITION_MAP_SUFFIX = ".map"

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:")
_METADATA_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_HASH_BITS = 20
_HASH_DIRECTORIES = (slice(0, 4), slice(4, 8), slice(8, 12), slice(12, None))


def table_location(location: str) -> str:
    """`location` as it is written into metadata: absolute, without a trailing slash.

    A plain relative path is taken from the current directory; a URI is left as it is.
    """
    if not location or not location.strip("/"):
        raise InvalidOptionError(
            f"{location!r} is not a table location; give the path or URI of the table's directory"
        )
    if not _ABSOLUTE.match(location):
        location = os.path.abspath(os.path.expanduser(location))
    return location.rstrip("/")


def noted_table(table: str, catalog: object | None) -> str:
    """The name of a table in a checkpoint directory.

    It is the table's location if there is no catalog, else its name there.
    """
    return table_location(table) if catalog is None or "://" in table else table


def data_file_name(
    partition_id: int, task_id: int, operation_id: str, count: int, extension: str, *, deletes: bool = False
) -> str:
    """The name of a data file: `{partition:05d}-{task}-{uuid}-{count:05d}.parquet`, or `...-deletes.parquet`.

    It is unique per task attempt, because the uuid is.
    """
    ending = f"-deletes.{extension}" if deletes else f".{extension}"
    return f"{partition_id:05d}-{task_id}-{operation_id}-{count:05d}{ending}"


def metadata_version_of(path: str) -> int | None:
    """The version number N of a `v{N}.metadata.json` path, plain or gzip; None for any other name."""
    match = _METADATA_VERSION.fullmatch(path.rpartition("/")[2])
    return int(match.group(1)) if match else None


@dataclass(frozen=True)
class TableLocations:
    """The paths of one table, from its location and the `write.*` properties that move them."""

    location: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def data_directory(self) -> str:
        """The directory of data and delete files: `write.data.path`, else `{location}/data`."""
        for name in _REMOVED:
            if name in self.properties:
                raise InvalidOptionError(
                    f"table property {name} was removed from Iceberg; set {DATA_PATH} instead"
                )
        return self._directory(DATA_PATH, "data")

    @property
    def metadata_directory(self) -> str:
        """The directory of manifests, manifest lists and staged checkpoints.

        It is `write.metadata.path`, else `{location}/metadata`.
        """
        return self._directory(METADATA_PATH, "metadata")

    @property
    def root_metadata_directory(self) -> str:
        """The directory of a Hadoop table's versions; `write.metadata.path` cannot move it."""
        return f"{self._root}/metadata"

    def data_file(self, partition_path: str, name: str) -> str:
        """Path of the data or delete file `name`; `partition_path` is "" for an unpartitioned table.

        With `write.object-storage.enabled`, directories made of a hash of the name come first, so that an
        object store spreads the load, and `write.object-storage.partitioned-paths=false` leaves the partition
        out.
        """
        if LOCATION_PROVIDER in self.properties:
            raise FeatureUnsupportedError(
                f"{self.location}: table property {LOCATION_PROVIDER} names a Java class, which cannot place "
                f"files here; unset it, or use {DATA_PATH} and {OBJECT_STORAGE}"
            )
        relative = f"{partition_path}/{name}" if partition_path else name
        if not self._flag(OBJECT_STORAGE, default=False):
            return f"{self.data_directory}/{relative}"
        partitioned = self._flag(OBJECT_STORAGE_PARTITIONED, default=True)
        if not partitioned:
            relative = name
        entropy = hash_directories(relative)
        if not self.data_directory.startswith(self._root):
            context = "/".join(part for part in self._root.split("/")[-2:] if part)
            return f"{self.data_directory}/{entropy}/{context}/{relative}"
        separator = "/" if partitioned else "-"
        return f"{self.data_directory}/{entropy}{separator}{relative}"

    def metadata_version(self, version: int, *, gzip: bool = False) -> str:
        """Path of a Hadoop table's metadata file: `v{N}.metadata.json` or `v{N}.gz.metadata.json`."""
        return f"{self.root_metadata_directory}/v{version}{'.gz' if gzip else ''}.metadata.json"

    def metadata_file(self, number: int, uuid: str, *, gzip: bool = False) -> str:
        """Path of a metadata file whose name is its own: `{number:05d}-{uuid}.metadata.json`, or with `.gz`.

        It is the name that Iceberg gives in catalogs that hold a pointer to it.
        """
        return f"{self.metadata_directory}/{number:05d}-{uuid}{'.gz' if gzip else ''}.metadata.json"

    def version_hint(self) -> str:
        """Path of the file that holds the newest version number known to its writer."""
        return f"{self.root_metadata_directory}/version-hint.text"

    def manifest_list(self, snapshot_id: int, attempt: int, uuid: str) -> str:
        """Path of the manifest list that commit attempt `attempt` writes for a snapshot."""
        return f"{self.metadata_directory}/snap-{snapshot_id}-{attempt}-{uuid}.avro"

    def manifest(self, uuid: str, number: int) -> str:
        """Path of the `number`-th manifest of the commit or checkpoint with this uuid."""
        return f"{self.metadata_directory}/{uuid}-m{number}.avro"

    @property
    def committables_directory(self) -> str:
        """Directory of the staged checkpoints of all streaming jobs."""
        return f"{self.metadata_directory}/streamlake"

    def committables(self, job_id: str) -> str:
        """Directory of the staged checkpoints of one streaming job."""
        return f"{self.committables_directory}/{job_id}"

    def committable(self, job_id: str, checkpoint_id: int) -> str:
        """Path of one staged checkpoint."""
        return f"{self.committables(job_id)}/checkpoint-{checkpoint_id:010d}.json"

    @property
    def index_directory(self) -> str:
        """Directory of the key index; the underscore hides it from the removal of orphan files."""
        return f"{self.metadata_directory}/_index"

    def index_run(self, uuid: str) -> str:
        """Path of a run of the key index."""
        return f"{self.index_directory}/{uuid}.run"

    def position_map(self, uuid: str) -> str:
        """Path of a position map, which a compaction leaves for the key index."""
        return f"{self.index_directory}/{uuid}{POSITION_MAP_SUFFIX}"

    def index_state(self, uuid: str) -> str:
        """Path of the file that lists the runs of the key index of a snapshot."""
        return f"{self.index_directory}/{uuid}.json"

    @property
    def _root(self) -> str:
        return self.location.rstrip("/")

    def _directory(self, key: str, default: str) -> str:
        path = (self.properties.get(key) or default).rstrip("/")
        return path if _ABSOLUTE.match(path) else f"{self._root}/{path}"

    def _flag(self, key: str, *, default: bool) -> bool:
        text = str(self.properties.get(key, default)).strip().lower()
        if text not in ("true", "false"):
            raise InvalidOptionError(f"table property {key} must be true or false, not {text!r}")
        return text == "true"


def hash_directories(name: str) -> str:
    """The directories that Iceberg's object store layout puts before `name`: "1011/0011/1010/00011110"."""
    bits = f"{murmur3_32(name.encode('utf-8')) & 0xFFFF_FFFF:032b}"[-_HASH_BITS:]
    return "/".join(bits[part] for part in _HASH_DIRECTORIES)
