"""Samples of JSON records: a few of many, parsed, to see in which form an envelope writes its values.

Used by the decoders of envelopes before they read a block in bulk. The samples decide how fast the block is
read, never what its records mean.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json.json_values import parse_object

_COUNT = 8


def samples(values: pa.Array, count: int = _COUNT) -> list[dict[str, Any]]:
    """Up to `count` records, spread over a binary array; those that are not objects are left out."""
    found = []
    for at in np.unique(np.linspace(0, len(values) - 1, min(count, len(values))).astype(np.int64)):
        with suppress(ValueError):
            found.append(parse_object(values[int(at)].as_py()))
    return found
