"""The settings of a catalog that are about storage.

They travel to executors, and what opens the catalog itself does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "client.")


def storage_settings(properties: Mapping[str, Any]) -> dict[str, str]:
    """Those of a catalog's properties that its storage needs, as text."""
    return {key: str(value) for key, value in properties.items() if key.startswith(STORAGE_PREFIXES)}
