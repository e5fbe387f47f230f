"""Speeds up Python workers: memory that one chunk of records has freed is kept for the next.

Tasks of the direct path return megabytes to the C library with every chunk of records, and ask for as many
right away. By default the library gives large pieces back to the system, which then has to provide them anew,
page by page; on virtual machines that can take longer than decoding what goes into them. Tasks call it; it
holds for the worker's whole life.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_PIECE_BYTES = 32 << 20


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 256 MiB at the top of its heap, and take pieces below 32 MiB from there.

    False where it is not glibc; other libraries do not have these settings.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _PIECE_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
