from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from pathways_jupyter.base import process_setup

if {keep}:
    process_setup.keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def messages():
    made = [bytes([each]) * 256 * 1024 for each in range(32)]
    made.clear()

for _ in range(3):
    messages()
before = faults()
for _ in range(10):
    messages()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns freed memory like this")
def test_memory_of_messages_is_kept_for_the_next_ones():
    kept, returned = (
        int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for program in (_PROGRAM.format(keep=True), _PROGRAM.format(keep=False))
    )
    # 80 MB in pages of 4 KB.
    assert kept < 1_000 < 10_000 < returned
