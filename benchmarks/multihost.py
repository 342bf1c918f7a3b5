"""A directory and a command on many hosts: ours against one tar that scp and ssh processes carry to each host."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks import sshd_hosts
from benchmarks.measure import NotMeasured, Row, Table, in_process, median
from benchmarks.sshd_hosts import Hosts

_HOSTS = 16
_ROUNDS = 3
_BYTES = 20 * 1000 * 1000
_COMMAND = "echo done"
_KEY_EXCHANGE = "curve25519-sha256"
_OUR_KEY_EXCHANGE = ("-o", f"KexAlgorithms={_KEY_EXCHANGE}")
"""Options of ssh."""
_PEER, _PEER_WITH_OUR_KEYS = "tar, scp, ssh", "the same, curve25519"


def run() -> list[Table]:
    """Measure first runs and runs after a change of one file, ours and the peer's in turn.

    Raises:
      NotMeasured: There is no ssh or sshd.
    """
    if sshd_hosts.SSHD is None or shutil.which("ssh") is None:
        raise NotMeasured("it needs ssh and sshd.")
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="pw-") as name:
        directory = Path(name)
        code = directory / "code"
        _fill(code)
        with sshd_hosts.running(directory, _HOSTS) as hosts:
            for number in range(_ROUNDS):
                theirs.append(_peer(hosts, code, directory, number))
                hosts.clear()
                ours.append(_ours(hosts, code, directory, number))
    return [_table(ours, theirs)]


def _table(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> Table:
    def of(runs: Sequence[dict[str, float]], part: str) -> float:
        return median([each[part] for each in runs])

    names = {
        "first": ("first run", "first"),
        "again": ("again, one file changed", "again"),
        "shell": ("the same from a new process", "again"),
    }
    rows = [
        Row(name, {"ours": of(ours, key), _PEER: of(theirs, peer), _PEER_WITH_OUR_KEYS: of(theirs, f"curve {peer}")})
        for key, (name, peer) in names.items()
    ]
    ratios = [(row.values[_PEER] or 0.0) / (row.values["ours"] or 1.0) for row in rows]
    fair = [(row.values[_PEER_WITH_OUR_KEYS] or 0.0) / (row.values["ours"] or 1.0) for row in rows]
    version = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr.split(",")[0]
    return Table(
        f"A 20 MB directory and a command on {_HOSTS} hosts",
        "s",
        rows,
        goal="first run at least as fast as tar, scp and ssh, a run after a change of one file in a notebook 10 times",
        verdict=f"first run {ratios[0]:.1f} times; after a change {ratios[1]:.0f} times in a notebook that keeps its "
        f"connections, {ratios[2]:.1f} times from a new process; with the same key exchange {fair[0]:.1f}, "
        f"{fair[1]:.0f} and {fair[2]:.1f} times",
        notes=[
            f"Hosts are {_HOSTS} sshd processes on loopback, and all hosts share the client's cores; the peer is one "
            f"tar -czf, then an scp process and an ssh process for each host at once, of {version.strip()}.",
            "The peer connects twice to each host, and much of its work is the key exchange that its ssh prefers. The "
            f"last column is the peer with {_KEY_EXCHANGE}, which is what ours agrees on with these hosts.",
            "The directory is JAX's Python sources, and 8 MB that cannot be compressed.",
        ],
    )


def _fill(code: Path) -> None:
    """Write about 20 MB: sources, and bytes without pattern."""
    spec = find_spec("jax")
    assert spec is not None
    assert spec.origin is not None
    source, left = Path(spec.origin).parent, _BYTES - 8_000_000
    for path in sorted(source.rglob("*.py")):
        if (left := left - path.stat().st_size) < 0:
            break
        target = code / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    chance = random.Random(7)
    for number in range(4):
        (code / f"tokens{number}.bin").write_bytes(chance.randbytes(2_000_000))


def _change(code: Path, number: float) -> None:
    (code / "train.py").write_text(f"print({number})\n")


def _ours(hosts: Hosts, code: Path, directory: Path, number: int) -> dict[str, float]:
    _change(code, number)
    environ = {**os.environ, "HOME": str(directory)}
    inventory = directory / "inventory"
    inventory.write_text("".join(f"127.0.0.1:{port}\n" for port in hosts.ports))
    words = [str(inventory), str(hosts.key), str(hosts.known_hosts), str(code), _COMMAND]
    found: dict[str, float] = in_process("benchmarks.multihost_workload", *words, environ=environ)
    login = ["--hosts", str(inventory), "--key", str(hosts.key), "--known-hosts", str(hosts.known_hosts)]
    _change(code, number + 0.25)
    began = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pathways_jupyter",
            "multihost",
            "run",
            *login,
            "--dir",
            str(code),
            "--run-name",
            "bench",
            "--",
            _COMMAND,
        ],
        env=environ,
        cwd=directory,
        check=True,
        capture_output=True,
    )
    found["shell"] = time.perf_counter() - began
    return found


def _peer(hosts: Hosts, code: Path, directory: Path, number: int) -> dict[str, float]:
    found = {}
    for prefix, options in (("", ()), ("curve ", _OUR_KEY_EXCHANGE)):
        hosts.clear()
        for part in ("first", "again"):
            _change(code, number)
            began = time.perf_counter()
            _tar_scp_ssh(hosts, code, directory / "code.tar.gz", options)
            found[prefix + part] = time.perf_counter() - began
    return found


def _tar_scp_ssh(hosts: Hosts, code: Path, tar: Path, more: Sequence[str] = ()) -> None:
    """Send the directory and run the command with the usual programs."""
    login = ["-i", str(hosts.key), "-o", f"UserKnownHostsFile={hosts.known_hosts}", "-o", "BatchMode=yes", "-q"]
    options = [*login, *more]
    subprocess.run(["tar", "-czf", str(tar), "-C", str(code), "."], check=True)
    _all([["scp", *options, "-P", str(port), str(tar), "127.0.0.1:code.tar.gz"] for port in hosts.ports])
    command = f"rm -rf bench && mkdir bench && cd bench && tar -xzf ../code.tar.gz && {_COMMAND}"
    _all([["ssh", *options, "-p", str(port), "127.0.0.1", command] for port in hosts.ports])


def _all(commands: Sequence[Sequence[str]]) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL)) for command in commands]
        for process in processes:
            if process.wait(120):
                raise RuntimeError(f"{json.dumps(process.args)} ended with {process.returncode}")
