"""A Spark driver that writes to a table through a catalog of Iceberg's Java library: appended rows and set properties.

Arguments: a directory, the jars, the catalog's properties as JSON, the table, and how many rows and how many properties,
each a commit. A file `ready` in the directory says that the first one is about to be made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.helpers.spark import UNCOMPILED, build_session


def main(home: Path, class_path: str, properties: dict[str, str], table: str, rows: int, values: int) -> None:
    catalog = table.partition(".")[0]
    settings = {f"spark.sql.catalog.{catalog}.{key}": value for key, value in properties.items()}
    settings |= {
        f"spark.sql.catalog.{catalog}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{catalog}.cache-enabled": "false",
        "spark.driver.extraClassPath": class_path,
    }
    session = build_session(home, "local[1]", extra={**UNCOMPILED, **settings})
    session.sql(f"SELECT * FROM {table}").collect()
    (home / "ready").write_text("")
    for number in range(max(rows, values)):
        if number < rows:
            session.sql(f"INSERT INTO {table} VALUES ({number})")
        if number < values:
            session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('java-{number}' = '1')")
    found = session.sql(f"SELECT id FROM {table}").collect()
    assert sorted(row[0] for row in found) == list(range(rows)), found
    session.stop()


if __name__ == "__main__":
    directory, jars, given, name, appended, changed = sys.argv[1:]
    main(Path(directory), jars, json.loads(given), name, int(appended), int(changed))
