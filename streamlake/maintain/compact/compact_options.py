"""The options of a compaction: names, defaults and checks of Iceberg's `rewrite_data_files`.

Parsed once at the edge. Defaults that depend on the table come from its properties, as in Iceberg.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import InvalidOptionError
from streamlake.options import Property, check_option_names
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.write.target.options import TARGET_FILE_SIZE, WriteOptions

BINPACK, SORT = "binpack", "sort"
STRATEGIES = (BINPACK, SORT)
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
_WHERE = "compact options"
_MAX_CONCURRENT = 5
_MIN_RATIO, _MAX_RATIO = 0.75, 1.8
_GROUP_BYTES = 100 * 1024**3

OPTIONS = (
    Property("target-file-size-bytes", TARGET_FILE_SIZE, "How large the new files become."),
    Property("min-file-size-bytes", "75% of the target", "Smaller files are rewritten."),
    Property("max-file-size-bytes", "180% of the target", "Larger files are rewritten."),
    Property(
        "min-input-files", "5", "A group with so many files is rewritten, whatever their sizes together."
    ),
    Property("rewrite-all", "false", "All files are rewritten."),
    Property(
        "delete-file-threshold", "", "A file with so many delete files is rewritten (default: none is)."
    ),
    Property("delete-ratio-threshold", "0.3", "A file with this share of deleted rows is rewritten."),
    Property("max-file-group-size-bytes", "107374182400", "How many bytes one group has at most."),
    Property("max-file-group-input-files", "", "How many files one group has at most (default: any number)."),
    Property("max-files-to-rewrite", "", "How many files are rewritten at most (default: any number)."),
    Property(
        "max-concurrent-file-group-rewrites", "one per processor, at most 5", "Groups written at a time."
    ),
    Property("rewrite-job-order", "none", f"The order of the groups: {', '.join(JOB_ORDERS)}."),
    Property("partial-progress.enabled", "false", "Commit groups when they are ready, in several snapshots."),
    Property("partial-progress.max-commits", "10", "How many snapshots at most, with partial progress."),
    Property(
        "partial-progress.max-failed-commits",
        "partial-progress.max-commits",
        "How many commits may fail, with partial progress.",
    ),
    Property("output-spec-id", "the current spec", "The partition spec that the new files are written by."),
    Property(
        "use-starting-sequence-number",
        "true",
        "New files have the sequence number of the start, so that later deletes by key apply to them. With "
        "`false` such deletes are conflicts.",
    ),
)
_NAMES = tuple(option.name for option in OPTIONS)


@dataclass(frozen=True)
class CompactSettings:
    """What a compaction is asked for, as users give it.

    `sort_by` is for the strategy "sort": texts such as "ts desc" (none: the table's sort order). `filter`
    chooses partitions. `options` are those of OPTIONS, with any values. `in_tiers`: see `chosen_groups`;
    groups of `max_bytes` in all are rewritten (None: all).
    """

    strategy: str = BINPACK
    sort_by: tuple[str, ...] = ()
    filter: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    branch: str = MAIN_BRANCH
    dry_run: bool = False
    in_tiers: bool = False
    max_bytes: int | None = None


@dataclass(frozen=True)
class CompactOptions:
    """The options for one table; sizes in bytes. None: no limit."""

    target_file_size: int
    min_file_size: int
    max_file_size: int
    min_input_files: int
    rewrite_all: bool
    delete_file_threshold: int | None
    delete_ratio_threshold: float
    max_group_size: int
    max_group_files: int | None
    max_files: int | None
    concurrent_groups: int
    job_order: str
    partial_progress: bool
    max_commits: int
    max_failed_commits: int
    output_spec_id: int
    keeps_sequence_number: bool

    @property
    def largest_output(self) -> int:
        """The size at which a new file ends at last: half way between the target and the largest size.

        So a group of a little more than the target makes no tiny second file.
        """
        return int(self.target_file_size + (self.max_file_size - self.target_file_size) * 0.5)

    def output_files(self, input_size: int) -> int:
        """How many files a group of so many bytes becomes.

        A remainder below the smallest size is spread over the others where they grow by less than a tenth.
        """
        target = self.target_file_size
        if input_size < target:
            return 1
        whole, rest = divmod(input_size, target)
        spread = rest <= self.min_file_size and input_size // whole < min(1.1 * target, self.largest_output)
        return whole if spread or not rest else whole + 1

    @staticmethod
    def parse(given: Mapping[str, object], metadata: TableMetadata) -> CompactOptions:
        """The options for a table. Raises InvalidOptionError, which names the option."""
        check_option_names(map(str, given), _NAMES, _WHERE)
        values = _Values({str(name): str(value).strip() for name, value in given.items()})
        write = WriteOptions.from_properties(metadata.properties)
        target = values.number("target-file-size-bytes", write.target_file_size_bytes, 1)
        smallest = values.number("min-file-size-bytes", int(target * _MIN_RATIO), 0)
        largest = values.number("max-file-size-bytes", int(target * _MAX_RATIO), 0)
        if not smallest < target < largest:
            raise InvalidOptionError(
                f"{_WHERE}: target-file-size-bytes ({target}) must be above min-file-size-bytes ({smallest}) "
                f"and below max-file-size-bytes ({largest}); else the new files would be rewritten again"
            )
        row_group = write.format.parquet_row_group_size_bytes
        if "target-file-size-bytes" in values.given and write.file_format == "parquet" and target < row_group:
            raise InvalidOptionError(
                f"{_WHERE}: target-file-size-bytes={target} is smaller than a row group of the table "
                f"({row_group}); raise it, or lower the table property write.parquet.row-group-size-bytes"
            )
        max_commits = values.number("partial-progress.max-commits", 10, 1)
        spec_id = values.number("output-spec-id", metadata.default_spec_id, 0)
        if spec_id not in metadata.specs_by_id:
            known = ", ".join(map(str, sorted(metadata.specs_by_id)))
            raise InvalidOptionError(
                f"{_WHERE}: output-spec-id={spec_id} is no spec of the table; it has {known}"
            )
        return CompactOptions(
            target_file_size=target,
            min_file_size=smallest,
            max_file_size=largest,
            min_input_files=values.number("min-input-files", 5, 1),
            rewrite_all=values.flag("rewrite-all", False),
            delete_file_threshold=values.limit("delete-file-threshold", 0),
            delete_ratio_threshold=values.ratio("delete-ratio-threshold", 0.3),
            max_group_size=values.number("max-file-group-size-bytes", _GROUP_BYTES, 1),
            max_group_files=values.limit("max-file-group-input-files", 1),
            max_files=values.limit("max-files-to-rewrite", 1),
            concurrent_groups=values.number(
                "max-concurrent-file-group-rewrites", min(_MAX_CONCURRENT, os.cpu_count() or 1), 1
            ),
            job_order=values.one_of("rewrite-job-order", "none", JOB_ORDERS),
            partial_progress=values.flag("partial-progress.enabled", False),
            max_commits=max_commits,
            max_failed_commits=values.number("partial-progress.max-failed-commits", max_commits, 0),
            output_spec_id=spec_id,
            keeps_sequence_number=values.flag("use-starting-sequence-number", True),
        )


@dataclass(frozen=True)
class _Values:
    given: Mapping[str, str]

    def number(self, name: str, default: int, least: int) -> int:
        text = self.given.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise InvalidOptionError(f"{_WHERE}: {name}={text!r} is not a whole number") from None
        if value < least:
            raise InvalidOptionError(f"{_WHERE}: {name}={value} is below {least}")
        return value

    def limit(self, name: str, least: int) -> int | None:
        return self.number(name, 0, least) if name in self.given else None

    def ratio(self, name: str, default: float) -> float:
        text = self.given.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise InvalidOptionError(f"{_WHERE}: {name}={text!r} is not a number") from None
        if not 0 < value <= 1:
            raise InvalidOptionError(f"{_WHERE}: {name}={text} is not above 0 and at most 1")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.one_of(name, str(default).lower(), ("true", "false")) == "true"

    def one_of(self, name: str, default: str, known: tuple[str, ...]) -> str:
        value = self.given.get(name, default).lower()
        if value not in known:
            raise InvalidOptionError(f"{_WHERE}: {name}={value!r} is not one of {', '.join(known)}")
        return value
