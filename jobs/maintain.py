"""spark-submit entry point: keeps the tables of a pipeline, or one table, healthy.

spark-submit --master local[1] jobs/maintain.py orders.yaml
spark-submit --master local[1] jobs/maintain.py db.orders --catalog lake --only compact,expire

It takes what `streamlake maintain` takes, and works in the driver alone.
"""

from __future__ import annotations

import sys

from streamlake.cli.main import main

if __name__ == "__main__":
    main(["maintain", *sys.argv[1:]])
