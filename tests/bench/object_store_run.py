"""Measures the data path of object stores, obstore against pyarrow.fs, in turns against one S3 server.

    python -m tests.bench.object_store_run http://127.0.0.1:7070 KEY SECRET

Without arguments against moto, which is slower than both clients and so shows less of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streamlake.storage.file_io import file_io_for
from tests.helpers.object_store import KEYS, S3Server, s3_server

ROUNDS = 5
BUCKET = "bench"
SMALL = 20
"""Small files that are written one after the other."""


def main(endpoint: str | None = None, key: str = "", secret: str = "") -> None:
    with s3_server() if endpoint is None else nullcontext(S3Server(endpoint)) as server:
        keys = KEYS if endpoint is None else {**KEYS, "s3.access-key-id": key, "s3.secret-access-key": secret}
        ours = file_io_for(f"s3://{BUCKET}/t", {"s3.endpoint": server.endpoint, **keys})
        arrow = fs.S3FileSystem(
            access_key=keys["s3.access-key-id"],
            secret_key=keys["s3.secret-access-key"],
            endpoint_override=server.endpoint,
            region=keys["s3.region"],
            allow_bucket_creation=True,
        )
        arrow.create_dir(BUCKET)
        numbers = np.random.default_rng(1)
        columns = {f"c{at}": pa.array(numbers.integers(0, 2**62, 1_000_000)) for at in range(8)}
        table = pa.table(columns)
        steps: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "upload of one Parquet file, 64 MB, as a stream": (
                lambda: _written(ours.open_output(f"s3://{BUCKET}/t/ours"), table),
                lambda: _written(arrow.open_output_stream(f"{BUCKET}/t/arrow"), table),
            ),
            "read of the whole file": (
                lambda: pq.read_table(ours.open_input(f"s3://{BUCKET}/t/ours")),
                lambda: pq.read_table(arrow.open_input_file(f"{BUCKET}/t/arrow")),
            ),
            "read of two of its eight columns": (
                lambda: pq.read_table(ours.open_input(f"s3://{BUCKET}/t/ours"), columns=["c1", "c6"]),
                lambda: pq.read_table(arrow.open_input_file(f"{BUCKET}/t/arrow"), columns=["c1", "c6"]),
            ),
            f"{SMALL} files of 20 kB": (
                lambda: [_put(ours.open_output(f"s3://{BUCKET}/s/{at}")) for at in range(SMALL)],
                lambda: [_put(arrow.open_output_stream(f"{BUCKET}/s/{at}")) for at in range(SMALL)],
            ),
        }
        for name, both in steps.items():
            times: tuple[list[float], list[float]] = ([], [])
            for round_ in range(ROUNDS + 1):
                for which in (0, 1) if round_ % 2 else (1, 0):
                    started = time.perf_counter()
                    both[which]()
                    if round_:
                        times[which].append(time.perf_counter() - started)
            own, other = map(statistics.median, times)
            print(f"{name}: obstore {own:.3f} s, pyarrow.fs {other:.3f} s, ratio {own / other:.2f}")


def _written(stream: object, table: pa.Table) -> None:
    with stream as output:  # type: ignore[attr-defined]
        pq.write_table(table, output, compression="none", use_dictionary=False, row_group_size=125_000)


def _put(stream: object) -> None:
    with stream as output:  # type: ignore[attr-defined]
        output.write(b"x" * 20_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
