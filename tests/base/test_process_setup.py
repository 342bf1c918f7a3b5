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


_IMPORTS = """
import os
from pathways_jupyter.base import process_setup

with process_setup.without_certificates():
    import aiohttp.connector
print(aiohttp.connector._SSL_CONTEXT_VERIFIED.get_ca_certs(), os.environ.get("SSL_CERT_FILE"))
"""


@pytest.mark.parametrize("file", [None, "/mine.pem"])
def test_an_import_without_certificates_loads_none_and_leaves_the_environment_alone(file, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if file:
        monkeypatch.setenv("SSL_CERT_FILE", file)
    ran = subprocess.run([sys.executable, "-c", _IMPORTS], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["[]", str(file)]
