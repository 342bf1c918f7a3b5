"""Real sshd processes on loopback, each with a home directory of its own, as the hosts of a run."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import portpicker
import psutil
import pytest

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv HOME={home}{environ}
ForceCommand cd {home} && eval "$SSH_ORIGINAL_COMMAND"
"""


def new_key(path: Path) -> None:
    """Make a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@dataclass
class Host:
    """One sshd with its own home directory."""

    directory: Path
    port: int
    key: Path
    process: subprocess.Popen | None = None
    environ: dict[str, str] = field(default_factory=dict)
    """Variables of its users beside HOME, from its next start on."""

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def known(self) -> str:
        """Its line in known_hosts."""
        kind, key, *_ = (self.directory / "host_key.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {kind} {key}\n"

    def start(self) -> None:
        config = self.directory / "sshd_config"
        more = "".join(f" {name}={value}" for name, value in self.environ.items())
        config.write_text(_CONFIG.format(port=self.port, directory=self.directory, home=self.home, environ=more))
        # As root it insists on this directory.
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.directory / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return
            assert self.process.poll() is None, (self.directory / "sshd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> None:
        """End the listener and all connections."""
        if self.process is None:
            return
        children = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.process = None

    def cut(self) -> int:
        """Break the connections that are open now, as a network does; return how many."""
        found = [
            each for each in psutil.Process(self.process.pid).children(recursive=True) if each.name().startswith("sshd")
        ]
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        return len(found)

    def new_host_key(self) -> None:
        for name in ("host_key", "host_key.pub"):
            (self.directory / name).unlink(missing_ok=True)
        new_key(self.directory / "host_key")

    def processes(self, variable: str = "") -> list[psutil.Process]:
        """Return the processes of this host: with its home directory, and an environment variable if given."""
        mark = f"HOME={self.home}"
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environ = Path(f"/proc/{each.pid}/environ").read_bytes().decode(errors="replace").split("\0")
                fits = not variable or any(one.startswith(f"{variable}=") for one in environ)
                if mark in environ and fits and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
        return found


@dataclass
class Farm:
    """Several hosts, a key that all accept, and the files that name them."""

    directory: Path
    hosts: list[Host] = field(default_factory=list)

    @property
    def key(self) -> Path:
        return self.directory / "id"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def inventory(self) -> Path:
        return self.directory / "hosts"

    def write(self) -> None:
        self.known_hosts.write_text("".join(host.known for host in self.hosts))
        self.inventory.write_text("".join(f"127.0.0.1:{host.port}\n" for host in self.hosts))

    def left(self, deadline: float = 60.0) -> list[str]:
        """Return what still runs on the hosts after at most `deadline` seconds."""
        until = time.monotonic() + deadline
        while True:
            found = [str(each) for host in self.hosts for each in host.processes()]
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.05)


@contextlib.contextmanager
def farm(directory: Path, count: int):
    """Run `count` hosts in `directory`; skip the tests that use them where this machine has no OpenSSH server."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs sshd and ssh-keygen; Debian's package is openssh-server")
    directory.mkdir(parents=True, exist_ok=True)
    made = Farm(directory)
    new_key(made.key)
    try:
        for number in range(count):
            place = directory / f"host{number}"
            (place / "home").mkdir(parents=True)
            shutil.copy(f"{made.key}.pub", place / "authorized_keys")
            host = Host(place, portpicker.pick_unused_port(), made.key)
            host.new_host_key()
            made.hosts.append(host)
            host.start()
        made.write()
        yield made
    finally:
        for host in made.hosts:
            host.stop()
        for host in made.hosts:
            for each in host.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
