"""State shared by the Parquet files of one task: schema forms, metrics modes, and encoding plans.

Every `ParquetFileWriter` of a task gets it. A task with hundreds of small files (one per partition) would
spend more time on choosing encodings than on writing. So a plan is reused for first row groups of about the
same size, and made anew for large ones. Invariant: sharing changes size and speed only.
"""

from __future__ import annotations

import json
from functools import cached_property

import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import parquet_schema
from streamlake.formats.columns.format_options import FormatOptions
from streamlake.formats.columns.leaves import schema_leaves
from streamlake.formats.parquet.parquet_encodings import EncodingPlan, plan_encodings
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_to_json

_LARGE_ROWS = 1 << 17


class ParquetLayout:
    """The layout of Parquet files of one schema under one set of options. Not thread-safe."""

    def __init__(self, schema: Schema, options: FormatOptions) -> None:
        self.schema = schema
        self.options = options
        self.arrow_schema = parquet_schema(schema)
        self.leaves = schema_leaves(schema)
        self.modes = options.metrics.modes(schema)
        self.codec = {"uncompressed": "none"}.get(options.parquet_codec, options.parquet_codec)
        level = options.parquet_compression_level
        self.compression_level = 1 if level is None and self.codec == "zstd" else level
        self._plans: dict[int, EncodingPlan] = {}

    @cached_property
    def schema_text(self) -> str:
        """The schema as JSON, for the footer."""
        return json.dumps(schema_to_json(self.schema))

    def plan(self, first: pa.Table) -> EncodingPlan:
        """The encodings of a file whose first row group is `first`."""
        magnitude = first.num_rows.bit_length() // 2
        plan = self._plans.get(magnitude) if first.num_rows < _LARGE_ROWS else None
        if plan is None:
            plan = self._plans[magnitude] = plan_encodings(
                first,
                self.leaves,
                dict_size_bytes=self.options.parquet_dict_size_bytes,
                delta=self.options.parquet_encodings == "auto",
                codec=self.codec,
                level=self.compression_level,
            )
        return plan
