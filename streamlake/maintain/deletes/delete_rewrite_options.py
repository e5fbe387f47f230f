"""The options of a conversion of deletes, with the names of Iceberg's `rewrite_position_delete_files`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.options import bool_property, check_option_names, int_property
from streamlake.write.target.options import PER_FILE, DeleteOptions

REWRITE_ALL = "rewrite-all"
MIN_INPUT_FILES = "min-input-files"
TARGET_SIZE = "target-file-size-bytes"
MIN_SIZE = "min-file-size-bytes"
OPTIONS = (REWRITE_ALL, MIN_INPUT_FILES, TARGET_SIZE, MIN_SIZE)
_SMALL = 0.75


@dataclass(frozen=True)
class DeleteRewriteOptions:
    """Which position deletes are merged.

    Those of a partition are, where at least `min_input_files` of them would be; with `rewrite_all`, all of
    them. `is_per_file`: the table wants one delete file per data file; otherwise delete files of whole
    partitions, and those below `min_file_size_bytes` are merged to `target_file_size_bytes`. Equality deletes
    are always converted, and version 3 has no position delete files: there these options matter for
    `rewrite_all` alone.
    """

    rewrite_all: bool = False
    min_input_files: int = 5
    target_file_size_bytes: int = DeleteOptions.target_file_size_bytes
    min_file_size_bytes: int = 0
    is_per_file: bool = True

    @staticmethod
    def of(options: Mapping[str, object], deletes: DeleteOptions) -> DeleteRewriteOptions:
        """The options as a user gives them, for a table with these of its own. Raises InvalidOptionError."""
        check_option_names(options, OPTIONS, "convert_deletes")
        given = {key: str(value) for key, value in options.items()}
        target = int_property(given, TARGET_SIZE, deletes.target_file_size_bytes, minimum=1)
        return DeleteRewriteOptions(
            bool_property(given, REWRITE_ALL, False),
            int_property(given, MIN_INPUT_FILES, 5, minimum=1),
            target,
            int_property(given, MIN_SIZE, int(target * _SMALL)),
            deletes.granularity == PER_FILE,
        )
