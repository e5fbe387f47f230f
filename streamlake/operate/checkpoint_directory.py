"""Opens the checkpoint directory of a pipeline from outside, without Spark."""

from __future__ import annotations

from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.checkpoint_storage import checkpoint_io
from streamlake.checkpoint.spark_directory import SparkDirectory


def started_directory(location: str, catalog: CatalogOption = None) -> SparkDirectory | None:
    """The checkpoint directory at `location`; None where no query has been started from it.

    Raises InvalidOptionError, FeatureUnsupportedError, StorageError where the storage cannot be asked, and
    DataInvalidError where the file with the query's id is damaged.
    """
    return SparkDirectory.started(location, checkpoint_io(location, catalog))


def existing_directory(location: str, catalog: CatalogOption = None) -> SparkDirectory:
    """The checkpoint directory at `location`.

    Raises InvalidOptionError where no query has been started from it, and what `started_directory` raises.
    """
    return SparkDirectory(location, checkpoint_io(location, catalog))
