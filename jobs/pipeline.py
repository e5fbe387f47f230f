"""spark-submit entry point: runs a pipeline file on whatever cluster spark-submit names.

spark-submit --master spark://host:7077 jobs/pipeline.py orders.yaml
"""

from __future__ import annotations

import argparse

from streamlake.cli.commands.run import report
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.definition.running import run_pipeline
from streamlake.pipeline.spark.session import spark_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="the pipeline file (YAML)")
    pipeline = load_pipeline(parser.parse_args().pipeline)
    spark = spark_session(
        pipeline.name or "streamlake",
        master=pipeline.spark.master,
        config=pipeline.spark.config,
        log_level=pipeline.spark.log_level,
    )
    try:
        run_pipeline(pipeline, spark, on_tick=report)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
