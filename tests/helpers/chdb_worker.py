"""Process of the chdb reader: one JSON request a line (query, target file), one JSON answer a line."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import chdb

    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = chdb.query(
                request["query"]
                + " settings output_format_arrow_string_as_string=0, output_format_arrow_fixed_string_as_fixed_byte_array=1,"
                + " session_timezone='UTC', use_iceberg_metadata_files_cache=0",
                "ArrowStream",
            )
            with open(request["target"], "wb") as target:
                target.write(result.bytes())
            answers.write("{}\n")
        except Exception as error:
            answers.write(json.dumps({"error": str(error)[:2000]}) + "\n")


if __name__ == "__main__":
    main()
