"""Table properties that steer commits, parsed once per operation into frozen values.

Names and defaults are Iceberg's (`commit.*`, `write.summary.*`, `write.metadata.*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import bool_property, int_property


@dataclass(frozen=True)
class RetryOptions:
    """How often and how long something is tried again; waits in milliseconds, doubling from min to max."""

    num_retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_timeout_ms: int

    @staticmethod
    def for_commit(properties: Mapping[str, str]) -> RetryOptions:
        """`commit.retry.*`: after a conflict."""
        return RetryOptions(
            int_property(properties, "commit.retry.num-retries", 4),
            int_property(properties, "commit.retry.min-wait-ms", 100),
            int_property(properties, "commit.retry.max-wait-ms", 60_000),
            int_property(properties, "commit.retry.total-timeout-ms", 1_800_000),
        )

    @staticmethod
    def for_status_check(properties: Mapping[str, str]) -> RetryOptions:
        """`commit.status-check.*`: reading the table after a commit whose outcome is not known."""
        return RetryOptions(
            int_property(properties, "commit.status-check.num-retries", 3),
            int_property(properties, "commit.status-check.min-wait-ms", 1_000),
            int_property(properties, "commit.status-check.max-wait-ms", 60_000),
            int_property(properties, "commit.status-check.total-timeout-ms", 1_800_000),
        )


@dataclass(frozen=True)
class ManifestOptions:
    """`commit.manifest*`: when manifests are merged, and how large they get (bytes)."""

    target_size_bytes: int
    min_count_to_merge: int
    merge_enabled: bool

    @staticmethod
    def parse(properties: Mapping[str, str]) -> ManifestOptions:
        return ManifestOptions(
            int_property(properties, "commit.manifest.target-size-bytes", 8 * 1024 * 1024, minimum=1),
            int_property(properties, "commit.manifest.min-count-to-merge", 100, minimum=1),
            bool_property(properties, "commit.manifest-merge.enabled", True),
        )


@dataclass(frozen=True)
class MetadataOptions:
    """`write.metadata.*`: how metadata files are written and how many are kept."""

    gzip: bool
    previous_versions_max: int
    delete_after_commit: bool

    @staticmethod
    def parse(properties: Mapping[str, str]) -> MetadataOptions:
        codec = properties.get("write.metadata.compression-codec", "none").lower()
        if codec not in ("none", "gzip"):
            raise InvalidOptionError(
                f"table property write.metadata.compression-codec={codec!r} is not supported; use none or gzip"
            )
        return MetadataOptions(
            codec == "gzip",
            max(1, int_property(properties, "write.metadata.previous-versions-max", 100)),
            bool_property(properties, "write.metadata.delete-after-commit.enabled", False),
        )


def partition_summary_limit(properties: Mapping[str, str]) -> int:
    """`write.summary.partition-limit`: summaries per partition are written up to this many changed partitions."""
    return int_property(properties, "write.summary.partition-limit", 0)
