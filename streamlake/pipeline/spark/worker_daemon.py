"""The process that Spark's Python workers are forked from, with the imports of their tasks already loaded.

Spark starts one per executor, by the setting `spark.python.daemon.module`; sessions that are created here
have it. A worker that is forked from it saves about a second of imports, and shares their memory with the
others. Invariant: what is imported here starts no thread, because a fork does not copy threads.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import daemon

from streamlake.pipeline.spark.without_pandas import decide_about_pandas

_PRELOADED = (
    "pyspark.sql.pandas.serializers",
    "streamlake.tasks.direct_reader",
    "streamlake.tasks.shuffle_block_task",
    "streamlake.tasks.routed_append",
    "streamlake.tasks.table_tasks",
)


def main() -> None:
    """Run the daemon; Spark calls this. It never returns."""
    decide_about_pandas()
    for name in _PRELOADED:
        import_module(name)
    # A garbage collection in a worker would write to every page that it shares.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
