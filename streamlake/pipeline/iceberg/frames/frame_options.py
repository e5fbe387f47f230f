"""Options of the format "streamlake": those of IcebergSource, and a few of DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.options import Property
from streamlake.pipeline.spark.admission_control import TABLE_FORMAT
from streamlake.source.iceberg.flat_table_options import source_of_options
from streamlake.source.iceberg.iceberg_source import IcebergSource

PROPERTIES = (
    Property(
        "catalog",
        "",
        "The catalog that the table's name is of: a name in PyIceberg's configuration, or a JSON object of "
        "properties. Without it, `load()` gets the table's path.",
    ),
    Property("catalog.<property>", "", "One property of the catalog: `catalog.type`, `catalog.uri`."),
    Property(
        "columns",
        "",
        "The columns to read, by commas (or a JSON list), nested ones dotted; `_file`, `_pos`, `_spec_id`, "
        "and on v3 tables `_row_id` and `_last_updated_sequence_number` too (default: all columns of the "
        "table). Spark passes no choice of columns to a Python source, so give it here.",
    ),
    Property("filter", "", "Rows to read, in the filter language: `amount > 10 and category in ('a', 'b')`."),
    Property(
        "metadata-table",
        "",
        "Of a batch: a metadata table in place of the rows, with the columns of Iceberg's own: `snapshots`, "
        "`history`, `refs`, `metadata_log_entries`, `manifests`, `partitions`, `files`, `data_files`, "
        "`delete_files`, `entries`, `all_manifests`, `all_files`, `all_data_files`, `all_delete_files`, "
        "`all_entries`. With snapshot-id, tag, branch or as-of-timestamp those that show one snapshot show "
        "that one.",
    ),
    Property(
        "limit",
        "",
        "Of a batch: at most so many rows, the first ones in the order of the files, read by one task. What "
        "the DataFrame filters itself comes after it.",
    ),
)

_OF_ROWS = ("start-snapshot-id", "start-tag", "start-snapshot-timestamp", "end-snapshot-id", "end-tag")


@dataclass(frozen=True)
class FrameOptions:
    """Parsed options of one `load()`.

    `limit` is a number of rows, None for all; `metadata_table` a name, None for the table's own rows.
    """

    source: IcebergSource
    limit: int | None = None
    metadata_table: str | None = None


def frame_options(options: Mapping[str, str]) -> FrameOptions:
    """The parsed options, whose names are in lower case.

    Raises InvalidOptionError, FeatureUnsupportedError for changes, which DataFrames do not have.
    """
    given = dict(options)
    limit = given.pop("limit", None)
    if limit is not None and not limit.strip().isdigit():
        raise InvalidOptionError(f"{TABLE_FORMAT}: limit is '{limit}'; give a number of rows, 0 or more")
    metadata_table = given.pop("metadata-table", None)
    source = source_of_options(given)
    if source.settings.read_mode == "changes":
        raise FeatureUnsupportedError(
            f"{TABLE_FORMAT}: read-mode=changes is not for DataFrames; stream the changes into a table by "
            "IcebergSink(...).start(IcebergSource(...)), or read a batch of them by "
            "load_table(...).scan_changes(...)"
        )
    if metadata_table is not None:
        for name in ("filter", *_OF_ROWS):
            if name in given:
                raise InvalidOptionError(
                    f"{TABLE_FORMAT}: {name} is for the table's rows, and metadata-table={metadata_table} is "
                    "read; leave it out, and filter the DataFrame"
                )
    return FrameOptions(source, None if limit is None else int(limit), metadata_table)
