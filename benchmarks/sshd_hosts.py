"""Hosts for the bench of runs on many hosts: OpenSSH servers on loopback, each with a home directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import portpicker

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
_SFTP = shutil.which("sftp-server", path="/usr/lib/openssh:/usr/libexec/openssh:/usr/lib/ssh:/usr/libexec")
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/../id.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp {sftp}
SetEnv HOME={home}
ForceCommand cd {home} && eval "$SSH_ORIGINAL_COMMAND"
"""


@dataclass(frozen=True)
class Hosts:
    """Running hosts: their ports and homes, and the files with which a client logs in to all of them."""

    ports: tuple[int, ...]
    homes: tuple[Path, ...]
    key: Path
    known_hosts: Path

    def clear(self) -> None:
        """Make all homes empty."""
        # Moved away, not deleted: for minutes after many files were deleted, ext4 takes several times as long to make
        # new ones, which would be measured instead of the run.
        for home in self.homes:
            home.rename(tempfile.mkdtemp(prefix="home-", dir=home.parent))
            home.mkdir()


@contextlib.contextmanager
def running(directory: Path, count: int) -> Iterator[Hosts]:
    """Run `count` hosts in `directory`."""
    assert SSHD is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _new_key(directory / "id")
    places = [directory / f"host{number}" for number in range(count)]
    ports, processes, known = [], [], []
    try:
        for place in places:
            (place / "home").mkdir(parents=True)
            _new_key(place / "host_key")
            port = portpicker.pick_unused_port()
            config = place / "config"
            config.write_text(_CONFIG.format(port=port, directory=place, home=place / "home", sftp=_SFTP))
            with (place / "log").open("wb") as log:
                processes.append(subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log))
            kind, key, *_ = (place / "host_key.pub").read_text().split()
            known.append(f"[127.0.0.1]:{port} {kind} {key}\n")
            ports.append(port)
        for port in ports:
            _wait_for(port)
        known_hosts = directory / "known_hosts"
        known_hosts.write_text("".join(known))
        yield Hosts(tuple(ports), tuple(place / "home" for place in places), directory / "id", known_hosts)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.02)
    raise TimeoutError(f"No sshd at port {port}.")
