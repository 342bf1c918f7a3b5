"""First runs over a slow uplink. As a program: measure, in a network namespace of its own; prints one line of JSON.

Loopback there is slow towards the ports of the hosts' sshd, which only the client connects to. What the hosts send to
each other goes to other ports, at full speed. The network of this machine is not touched.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import multihost, sshd_hosts
from benchmarks.measure import NotMeasured, Row, Table, in_process

_MEGABITS = 100
_NEW_NETWORK = 0x40000000
"""``CLONE_NEWNET``; the module os has unshare() only from Python 3.12 on."""
_LARGEST_PACKET = "64kb"


def run() -> list[Table]:
    """Measure one round.

    Raises:
      NotMeasured: A program is missing, or this user may not make a network.
    """
    if sshd_hosts.SSHD is None or not all(map(shutil.which, ("ssh", "ip", "tc", "unshare"))):
        raise NotMeasured("it needs ssh, sshd, ip, tc and unshare.")
    probe = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "htb"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        raise NotMeasured("this user may not make a network.")
    found = in_process("benchmarks.multihost_uplink")
    names = {"ours": "first run", "relay": "first run, hosts pass it on"}
    return [
        Table(
            f"The same over an uplink of {_MEGABITS} Mbit/s",
            "s",
            [Row(name, {"ours": found[key], "tar, scp, ssh": found["peer"]}) for key, name in names.items()],
            goal="with --relay twice as fast as tar, scp and ssh",
            verdict=f"first run {found['peer'] / found['ours']:.1f} times as fast, with --relay "
            f"{found['peer'] / found['relay']:.1f} times",
            notes=[
                "One round, in a network namespace where only what the client sends to the hosts is slowed down; the "
                "hosts answer, and reach each other, at the speed of loopback. The peer has our key exchange.",
            ],
        )
    ]


def main() -> int:
    """Measure the peer, ours, and ours with hosts that pass the files on, once each."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    _do(["ip", "link", "set", "lo", "up"])
    found = {}
    with tempfile.TemporaryDirectory(prefix="pw-") as name:
        directory = Path(name)
        code = directory / "code"
        multihost.fill(code)
        with sshd_hosts.running(directory, multihost.HOSTS) as hosts:
            _slow_down(hosts.ports)
            began = time.perf_counter()
            multihost.tar_scp_ssh(hosts, code, directory / "code.tar.gz", multihost.OUR_KEY_EXCHANGE)
            found["peer"] = time.perf_counter() - began
            for column, words in (("ours", ()), ("relay", ("relay",))):
                hosts.clear()
                environ = {**os.environ, "HOME": str(directory)}
                found[column] = multihost.workload(hosts, code, directory, environ, *words)["first"]
    print(json.dumps(found))
    return 0


def _slow_down(ports: Sequence[int]) -> None:
    rate = ["rate", f"{_MEGABITS}mbit", "burst", _LARGEST_PACKET, "cburst", _LARGEST_PACKET]
    # What no filter matches passes without a limit.
    _do(["tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb"])
    _do(["tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:1", "htb", *rate])
    for port in ports:
        match = ["match", "ip", "dport", str(port), "0xffff"]
        _do(["tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", *match, "flowid", "1:1"])


def _do(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
