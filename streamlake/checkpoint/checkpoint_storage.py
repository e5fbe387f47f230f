"""The storage of a checkpoint directory, reached without Spark.

Spark reaches the directory with Hadoop's settings, which are not known here: a directory on an object store
is opened with the storage properties of the pipeline's catalog and the environment's credentials.
"""

from __future__ import annotations

from streamlake.catalog.open import CatalogOption, storage_properties
from streamlake.storage.file_io import FileIO, file_io_for, scheme_of
from streamlake.storage.locations import table_location


def checkpoint_properties(location: str, catalog: CatalogOption) -> dict[str, str]:
    """The storage settings for a checkpoint directory: those of the catalog; none on a local disk."""
    return {} if scheme_of(table_location(location)) in ("", "file") else storage_properties(catalog)


def checkpoint_io(location: str, catalog: CatalogOption) -> FileIO:
    """The storage of a checkpoint directory. Raises InvalidOptionError, FeatureUnsupportedError."""
    return file_io_for(table_location(location), checkpoint_properties(location, catalog))
