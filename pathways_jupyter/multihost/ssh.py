"""Programs on hosts over SSH. Host keys are always verified."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncssh

from pathways_jupyter.base import setting_sources
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.multihost.errors import HostUnreachable, RemoteHostError
from pathways_jupyter.multihost.targets import SSH_PORT, Target

_CONNECT_SECONDS = 20.0
_LOGIN_SECONDS = 30.0
_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT = 15, 4
_HANDSHAKES = 16
"""Handshakes at once: they are all CPU, and with hundreds at once the slowest would time out."""
_READ_BYTES = 256 * 1024
_GOOGLE_KEY = "google_compute_engine"
_KNOWN_HOSTS = ("known_hosts", "google_compute_known_hosts")
"""The second one is gcloud's."""
# GCM first: with the processor's AES it costs half as much as ChaCha20.
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)


class Ssh:
    """Opens connections that share known hosts.

    Args:
      keys: Private keys; empty for the agent's, the usual ones in ``~/.ssh``, and ``google_compute_engine``.
      known_hosts: File with the keys of hosts, instead of those in ``~/.ssh``.
      accept_new: Accept and remember the key of a host that is not known yet. A changed key is never accepted.
    """

    def __init__(self, keys: Sequence[str] = (), known_hosts: str = "", accept_new: bool = False) -> None:
        self._accept_new = accept_new
        self._handshakes = asyncio.Semaphore(_HANDSHAKES)
        self._ours = setting_sources.profiles_path().with_name("pathways_known_hosts")
        if known_hosts:
            self._ours = Path(known_hosts).expanduser()
        theirs = [] if known_hosts else [Path.home() / ".ssh" / name for name in _KNOWN_HOSTS]
        self._paths = {*theirs, self._ours}
        self._read()
        self._keys = [os.path.expanduser(key) for key in keys]
        for key in self._keys:
            if not os.path.isfile(key):
                raise ConfigError(f"There is no key {key}.", hint="Make one: ssh-keygen -f FILE.")

    async def connect(self, target: Target) -> SshConnection:
        """Log in to `target`.

        Raises:
          RemoteHostError: The host's key is unknown or has changed, or the host refuses the login.
          HostUnreachable: It cannot be reached.
        """
        login = _Login(self, target)
        # What is left out comes from ~/.ssh/config.
        port = target.port if target.port != SSH_PORT else None
        options = {"username": target.user, "client_keys": self._keys, "host_key_alias": target.key_alias, "port": port}
        try:
            async with self._handshakes:
                connection = await asyncssh.connect(
                    target.address,
                    known_hosts=self._known,
                    client_factory=lambda: login,
                    connect_timeout=_CONNECT_SECONDS,
                    login_timeout=_LOGIN_SECONDS,
                    keepalive_interval=_KEEPALIVE_SECONDS,
                    keepalive_count_max=_KEEPALIVE_COUNT,
                    encryption_algs=_CIPHERS,
                    compression_algs=None,
                    **{name: value for name, value in options.items() if value},
                )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            raise _refused(target, login, error) from error
        return SshConnection(target, connection)

    def known(self, target: Target, host: str, address: str) -> bool:
        """Return whether a key of this host is known, right or wrong."""
        port = None if target.port == SSH_PORT else target.port
        # Addresses of VMs are given to others later, so where there is another name, only that counts.
        return any(self._known.match(host, "" if target.key_alias else address, port)[0])

    def accept(self, target: Target, host: str, key: asyncssh.SSHKey) -> bool:
        """Remember the key of a new host if that is allowed; return whether it is."""
        if not self._accept_new:
            return False
        name = host if target.port == SSH_PORT or target.key_alias else f"[{host}]:{target.port}"
        self._ours.parent.mkdir(parents=True, exist_ok=True)
        with self._ours.open("a+", encoding="utf-8", errors="surrogateescape") as file:
            file.seek(0)
            before = file.read()
            # The last line of a file that the user has written may have no end.
            ended = "" if not before or before.endswith("\n") else "\n"
            file.write(f"{ended}{name} {key.export_public_key('openssh').decode().strip()}\n")
        self._read()
        return True

    def _read(self) -> None:
        texts = []
        for path in sorted(self._paths):
            with contextlib.suppress(OSError):
                texts.append(path.read_text(encoding="utf-8", errors="replace"))
        try:
            self._known = asyncssh.import_known_hosts("\n".join(texts))
        except ValueError as error:
            raise ConfigError(
                f"The known hosts cannot be read: {error}.", hint="Fix the file, or use --known-hosts."
            ) from error


class _Login(asyncssh.SSHClient):
    """Decides about host keys that are not in a file, and offers gcloud's key after the others."""

    def __init__(self, ssh: Ssh, target: Target) -> None:
        self._ssh, self._target = ssh, target
        self._offered = bool(ssh._keys)
        self.seen = ""
        self.changed = False

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.seen = key.get_fingerprint()
        self.changed = self._ssh.known(self._target, host, addr)
        return not self.changed and self._ssh.accept(self._target, host, key)

    def public_key_auth_requested(self) -> str | None:
        path = Path.home() / ".ssh" / _GOOGLE_KEY
        if self._offered or not path.is_file():
            return None
        self._offered = True
        return str(path)


class SshConnection:
    """A connection to a host, which runs programs side by side."""

    def __init__(self, target: Target, connection: asyncssh.SSHClientConnection) -> None:
        self._target, self._connection = target, connection

    async def start(self, command: list[str]) -> SshChannel:
        """See :class:`~pathways_jupyter.multihost.host_program.Connection`."""
        try:
            process = await self._connection.create_process(shlex.join(command), encoding=None)
        except (OSError, asyncssh.Error) as error:
            raise HostUnreachable(
                f"{self._target.name} does not run commands: {error}.",
                hint="Check that the user's login shell there runs one: ssh HOST true.",
            ) from error
        return SshChannel(self._target, process)

    async def close(self) -> None:
        """See :class:`~pathways_jupyter.multihost.host_program.Connection`."""
        self._connection.close()
        try:
            async with asyncio.timeout(1):
                await self._connection.wait_closed()
        except (TimeoutError, OSError, asyncssh.Error):
            self._connection.abort()


class SshChannel:
    """A program on a host; see :class:`~pathways_jupyter.multihost.host_program.RemoteProcess` for its methods."""

    def __init__(self, target: Target, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._target, self._process = target, process

    async def write(self, data: bytes) -> None:
        """Send `data`."""
        # A program that has ended takes none; what it has said, which is read next, is the reason.
        with self._reporting_loss(), contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def read(self) -> bytes:
        """Return some output."""
        with self._reporting_loss():
            return await self._process.stdout.read(_READ_BYTES)

    async def close(self) -> None:
        """Close input and output."""
        self._process.close()

    async def complaint(self) -> bytes:
        """Return its standard error."""
        with contextlib.suppress(OSError, asyncssh.Error):
            # What a login script has started may keep it open.
            async with asyncio.timeout(1):
                return await self._process.stderr.read()
        return b""

    @contextlib.contextmanager
    def _reporting_loss(self) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncssh.Error) as error:
            lost = f"The connection to {self._target.name} was lost."
            raise HostUnreachable(lost, hint="Check the network.") from error


def _refused(target: Target, login: _Login, error: BaseException) -> RemoteHostError:
    where = target.name
    if isinstance(error, asyncssh.HostKeyNotVerifiable) and login.changed:
        return RemoteHostError(
            f"The host key of {where} has changed; it is now {login.seen}.",
            hint="If the host was made anew, remove its old key: ssh-keygen -R HOST. If not, do not connect.",
        )
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return RemoteHostError(
            f"The host key of {where} is not known: {login.seen or error}.",
            hint="Compare it with the host's own, then add --accept-new, or connect once with ssh.",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return RemoteHostError(
            f"{where} refused the login{f' of {target.user}' if target.user else ''}: none of the keys is accepted.",
            hint="Name the key with --key and the user with --user; add the public key to the host.",
        )
    if isinstance(error, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        return RemoteHostError(
            f"The key for {where} cannot be read: {error}.", hint="Use ssh-agent for a key with a password."
        )
    if isinstance(error, TimeoutError):
        detail = "no answer in time"
    else:
        detail = getattr(error, "strerror", "") or str(error) or type(error).__name__
    return HostUnreachable(
        f"{where} (port {target.port}) cannot be reached: {detail}.",
        hint="Check the address, the firewall and --internal-ip.",
    )
