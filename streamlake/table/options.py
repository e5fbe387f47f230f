"""Table properties that control commits, parsed once per operation into frozen values.

Names and defaults are Iceberg's (`commit.*`, `write.summary.*`, `write.metadata.*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import Property, bool_property, int_property

PROPERTIES = (
    Property(
        "commit.retry.num-retries", "4", "How often a commit is tried again after a conflict or in an outage."
    ),
    Property("commit.retry.min-wait-ms", "100", "The first wait between two attempts; it doubles each time."),
    Property("commit.retry.max-wait-ms", "60000", "The longest wait between two attempts."),
    Property("commit.retry.total-timeout-ms", "1800000", "How long attempts go on in total."),
    Property(
        "commit.status-check.num-retries",
        "3",
        "How often the table is read again after a commit of unknown outcome.",
    ),
    Property(
        "commit.status-check.min-wait-ms",
        "1000",
        "The first wait between two such reads; it doubles each time.",
    ),
    Property("commit.status-check.max-wait-ms", "60000", "The longest wait between two such reads."),
    Property("commit.status-check.total-timeout-ms", "1800000", "How long such reads go on in total."),
    Property("commit.manifest-merge.enabled", "true", "Whether a commit merges small manifests."),
    Property(
        "commit.manifest.min-count-to-merge",
        "100",
        "How many small manifests there are before they are merged.",
    ),
    Property("commit.manifest.target-size-bytes", "8388608", "How large a merged manifest becomes."),
    Property("write.metadata.compression-codec", "none", "`none` or `gzip`, of metadata files."),
    Property(
        "write.metadata.previous-versions-max", "100", "How many older metadata files the metadata log keeps."
    ),
    Property(
        "write.metadata.delete-after-commit.enabled",
        "false",
        "Whether a commit deletes the metadata files that leave the metadata log.",
    ),
    Property(
        "write.summary.partition-limit",
        "0",
        "Up to so many changed partitions, a snapshot's summary has counts for each of them.",
    ),
)


@dataclass(frozen=True)
class RetryOptions:
    """How often and how long an action is tried again.

    Waits are in milliseconds and double from min to max.
    """

    num_retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_timeout_ms: int

    @staticmethod
    def for_commit(properties: Mapping[str, str]) -> RetryOptions:
        """`commit.retry.*`: for commits that are tried again after a conflict."""
        return RetryOptions(
            int_property(properties, "commit.retry.num-retries", 4),
            int_property(properties, "commit.retry.min-wait-ms", 100),
            int_property(properties, "commit.retry.max-wait-ms", 60_000),
            int_property(properties, "commit.retry.total-timeout-ms", 1_800_000),
        )

    @staticmethod
    def for_status_check(properties: Mapping[str, str]) -> RetryOptions:
        """`commit.status-check.*`: for reads of the table after a commit whose outcome is not known."""
        return RetryOptions(
            int_property(properties, "commit.status-check.num-retries", 3),
            int_property(properties, "commit.status-check.min-wait-ms", 1_000),
            int_property(properties, "commit.status-check.max-wait-ms", 60_000),
            int_property(properties, "commit.status-check.total-timeout-ms", 1_800_000),
        )


@dataclass(frozen=True)
class ManifestOptions:
    """`commit.manifest*`: when manifests are merged, and how many bytes a merged one has."""

    target_size_bytes: int
    min_count_to_merge: int
    merge_enabled: bool

    @staticmethod
    def parse(properties: Mapping[str, str]) -> ManifestOptions:
        """The options from table properties. Raises InvalidOptionError."""
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
        """The options from table properties. Raises InvalidOptionError."""
        codec = properties.get("write.metadata.compression-codec", "none").lower()
        if codec not in ("none", "gzip"):
            raise InvalidOptionError(
                f"table property write.metadata.compression-codec={codec!r} is not supported; use none or "
                "gzip"
            )
        return MetadataOptions(
            codec == "gzip",
            max(1, int_property(properties, "write.metadata.previous-versions-max", 100)),
            bool_property(properties, "write.metadata.delete-after-commit.enabled", False),
        )


def partition_summary_limit(properties: Mapping[str, str]) -> int:
    """`write.summary.partition-limit`: the most changed partitions for which a summary has counts."""
    return int_property(properties, "write.summary.partition-limit", 0)
