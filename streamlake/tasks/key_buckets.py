"""Computes in Arrow which bucket of a table's key index each row belongs to.

It runs on the executors, wherever rows are routed to the tasks that own their keys. Invariant: rows of one
key get one bucket, whatever type the stream has it in. A value that the row check will refuse gets any
bucket, because it ends the checkpoint there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.write.rows.conversion import NotConvertibleError, converted

Array = Any  # numpy array


def key_buckets(columns: Sequence[pa.Array], codec: KeyCodec, bucketing: Bucketing) -> Array:
    """(n,) int32 below the number of buckets, for the n values of each of the codec's columns."""
    try:
        values = [
            converted(column, part.type, part.name)
            for column, part in zip(columns, codec.fields, strict=True)
        ]
    except NotConvertibleError:
        return np.zeros(len(columns[0]), dtype=np.int32)
    return bucketing.of_columns(values, codec)
