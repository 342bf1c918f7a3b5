"""As many hosts as a large slice has: what the client needs of memory and processor for them."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import sshd

PROGRAM = """
    import asyncio, json, resource, sys
    from pathlib import Path
    from pathways_jupyter.multihost import run
    from pathways_jupyter.multihost.run_events import RunEnded, Output
    from pathways_jupyter.multihost.targets import Selection

    async def main():
        hosts, key, known_hosts, code, logs = sys.argv[1:]
        selection = Selection(hosts=hosts, keys=(key,), known_hosts=known_hosts)
        lines = []
        request = run.RunRequest("wc -c < large", Path(code), logs=Path(logs))
        async for event in run.start(selection, request):
            if isinstance(event, Output):
                lines += event.lines
            if isinstance(event, RunEnded):
                used = resource.getrusage(resource.RUSAGE_SELF)
                seconds = used.ru_utime + used.ru_stime
                print(json.dumps({"code": event.code, "lines": lines, "kib": used.ru_maxrss, "seconds": seconds}))

    asyncio.run(main())
"""
LARGE = 8 << 20


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_memory_and_processor_grow_with_the_hosts_no_more_than_they_must(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    code = tmp_path / "code"
    code.mkdir()
    (code / "large").write_bytes(os.urandom(LARGE))
    used = {}
    with tempfile.TemporaryDirectory(prefix="pj-") as name, sshd.farm(Path(name) / "farm", 64) as farm:
        for count in (8, 64):
            hosts = ",".join(f"127.0.0.1:{host.port}" for host in farm.hosts[:count])
            words = [hosts, farm.key, farm.known_hosts, code, tmp_path / f"logs{count}"]
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, check=True
            )
            used[count] = json.loads(done.stdout)
            assert used[count]["code"] == 0
            assert used[count]["lines"] == [str(LARGE)] * count
        assert farm.left() == []
    # A buffer for each connection, but no copy of the content for each.
    assert used[64]["kib"] - used[8]["kib"] < 56 * 3 * 1024, used
    assert used[64]["seconds"] / 64 < 2 * used[8]["seconds"] / 8, used
