"""Freed memory stays with the process: what is asked for again comes without the system's help."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from streamlake.tasks.worker_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        pieces = [bytearray(20 << 20) for _ in range(4)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    assert keep_freed_memory()
    assert keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_kept():
    def faults(which: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", PROGRAM, which], text=True))

    assert faults("keep") * 10 < faults("give back")
