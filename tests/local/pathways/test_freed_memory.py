"""The memory of arrays that a client has freed: kept for its next arrays while it computes, returned after that."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.local.pathways.conftest import DEADLINE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keeping freed memory is an option of glibc")

PAGE = 4096
MAKE = "many = jax.block_until_ready([fill(each) for each in seeds])\nresult = sum(each.nbytes for each in many)"
DELETE = "for each in many: each.delete()\nresult = float(seeds[0])"


@pytest.fixture(scope="module")
def proxy(service, client) -> psutil.Process:
    """The proxy's process; its client can make 320 MB of arrays, each of which glibc would map on its own."""
    client.run("""
        import jax.numpy as jnp
        fill = jax.jit(lambda seed: jnp.ones(10_000_000) * seed)
        seeds = [jax.device_put(1.0, each) for each in jax.devices()]
    """)
    client.run(MAKE)
    client.run(DELETE)
    return psutil.Process(service.programs[-1].process.pid)


def page_faults(proxy: psutil.Process) -> int:
    return int(Path(f"/proc/{proxy.pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_new_arrays_are_written_into_the_memory_of_freed_ones(client, proxy):
    end = time.monotonic() + DEADLINE
    while True:
        before = page_faults(proxy)
        pages = client.run(MAKE) / PAGE
        faults = page_faults(proxy) - before
        client.run(DELETE)
        # More than once: on a slow machine the proxy may have been idle in between.
        if faults < pages / 4:
            return
        assert time.monotonic() < end, f"{faults} page faults for {pages:.0f} pages"


def test_an_idle_proxy_returns_the_memory_of_deleted_arrays(client, proxy):
    made = client.run(MAKE)
    held = proxy.memory_info().rss
    client.run(DELETE)
    end = time.monotonic() + DEADLINE
    while (now := proxy.memory_info().rss) > held - made / 2:
        assert time.monotonic() < end, f"{now:,} bytes, {held:,} with the arrays"
        time.sleep(0.2)
