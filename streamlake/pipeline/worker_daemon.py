"""The process that Spark's Python workers are forked from, with what tasks of the direct path import loaded already.

Spark starts one per executor, by the setting `spark.python.daemon.module`; sessions that are made here have it. A worker that
is forked from it needs no second for its imports, and shares their memory with the others. Invariant: what is imported here
starts no thread, because a fork takes none along.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import daemon

from streamlake.pipeline.without_pandas import decide_about_pandas

_PRELOADED = (
    "pyspark.sql.pandas.serializers",
    "streamlake.pipeline.direct_reader",
    "streamlake.pipeline.parcel_task",
    "streamlake.pipeline.routed_append",
    "streamlake.pipeline.table_tasks",
)


def main() -> None:
    """What Spark runs: never returns."""
    decide_about_pandas()
    for name in _PRELOADED:
        import_module(name)
    # A collection in a worker would write to every page that it shares.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
