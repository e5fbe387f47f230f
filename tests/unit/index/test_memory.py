"""A large run is looked up in and merged in little memory: what is mapped is given back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENTRIES = 4_000_000
SCRIPT = """
import json, sys
import numpy as np
from streamlake.index.runs.entries import SUPERSEDES, Entries, RunFile
from streamlake.index.keys.keys import Keys
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.run import open_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.storage.local import LocalFileIO

directory, count = sys.argv[1], int(sys.argv[2])
io, files, parts = LocalFileIO(), (RunFile("/data/a.parquet", True),), 64


def hashes(part, size):
    width = 2**64 // parts
    return np.sort(np.random.default_rng(part).integers(0, width, size, dtype=np.uint64)) + np.uint64(part * width)


def write(name, size):
    writer = RunWriter(io, f"{directory}/{name}", 0, 1)
    for part in range(parts):
        keys = Keys(hashes(part, count // parts)[: size // parts])
        rows = np.arange(len(keys))
        flags = np.full(len(keys), SUPERSEDES, dtype=np.uint8)
        writer.append(Entries(keys, np.zeros(len(keys), dtype=np.int32), rows, flags, files))
    return writer.close(files)


def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024


def growth(action):
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    action()
    return status("VmHWM") - before


def look_up():
    found = KeyIndex([run], {"/data/a.parquet"}).lookup(keys)
    assert len(found) == len(keys), len(found)


def merge():
    ref = merge_runs([newer, run], {"/data/a.parquet"}, RunWriter(io, f"{directory}/c", 0, 1), is_oldest=True)
    assert ref.entries == len(run)


old, new = write("a", count), write("b", count // 4)
keys = Keys(np.concatenate([hashes(part, count // parts)[::100] for part in range(parts)]))
run = newer = None


def open_both():
    global run, newer
    run, newer = open_run(io, old), open_run(io, new)


print(json.dumps({"bytes": old.bytes, "open": growth(open_both), "look up": growth(look_up), "merge": growth(merge)}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of memory")
def test_memory_is_bounded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(ENTRIES)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert grown["bytes"] > 12 * ENTRIES
    assert grown["open"] < 8_000_000, grown
    assert grown["look up"] < 24_000_000, grown
    assert grown["merge"] < 64_000_000, grown
