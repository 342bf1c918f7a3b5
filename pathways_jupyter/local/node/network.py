"""Addresses, names and sockets of pods, where all pods are processes of one machine.

Pathways' programs listen on unix sockets, ``$PATHWAYS_LOCAL_SOCKETS/<port>``. A pod's name is a link to the directory
of its sockets, in its namespace's ``$PATHWAYS_LOCAL_NAMES``; there is no name server. For programs that know only TCP,
each cluster claims one 127.N.0.0/16 and each pod gets an address of its own, on Linux, which answers on all of
127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import zlib
from pathlib import Path

from pathways_jupyter.base import runtime_files
from pathways_jupyter.local.pathways import links

_FIRST_NETWORK = 64
_NETWORKS = 128
_ADDRESSES = 250 * 256
_CLAIM_PORT = 29000
_BUFFER = 1024 * 1024
_LONGEST_SOCKET = "s/12345678/12345"
"""Below the cluster's directory: a pod's uid, shortened, and a port."""


class Network:
    """The addresses, names and sockets of one cluster's pods.

    Args:
      directory: Where names and sockets go; sockets move below the system's temporary directory when the
        path does not suit them (:mod:`~pathways_jupyter.base.runtime_files`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._claim, self._network = _claim(zlib.crc32(os.fsencode(directory)))
        self._next = 0
        self._taken: set[str] = set()
        self._directories: dict[str, Path] = {}
        self._sockets = directory / "s"
        if not runtime_files.suits_sockets(directory, _LONGEST_SOCKET):
            self._sockets = runtime_files.socket_directory("pathways-", _LONGEST_SOCKET)
        self._sockets.mkdir(mode=0o700, exist_ok=True)

    @property
    def roots(self) -> tuple[Path, ...]:
        """Directories outside the cluster's own that :meth:`close` removes."""
        return () if self._sockets.parent == self._directory else (self._sockets,)

    def assign(self) -> str:
        """Return an unused address; plain loopback where there is only that one."""
        if self._network is None:
            return "127.0.0.1"
        for _ in range(_ADDRESSES):
            self._next = self._next % _ADDRESSES + 1
            address = f"127.{self._network}.{self._next // 250}.{self._next % 250 + 2}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise OSError("every address of the cluster's network is taken")

    def release(self, address: str) -> None:
        """Release an address."""
        self._taken.discard(address)

    def sockets(self, uid: str) -> Path:
        """Return the directory of a pod's unix sockets, made with mode 0700."""
        if uid not in self._directories:
            path = self._directories[uid] = self._sockets / uid[:8]
            path.mkdir(mode=0o700, exist_ok=True)
        return self._directories[uid]

    def names(self, namespace: str) -> Path:
        """Return the directory of links to directories of sockets, by the names of a namespace's pods."""
        return self._directory / "names" / namespace

    def publish(self, uid: str, namespace: str, name: str) -> None:
        """Make `name` stand for a pod, instead of an older pod that had it."""
        # Not where its name is looked up: a pod's own may have dots, and be like one in another namespace.
        link = self.names(namespace) / name
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(self.sockets(uid))

    def forget(self, uid: str) -> None:
        """Withdraw the names and the sockets of a pod."""
        if (path := self._directories.pop(uid, None)) is not None:
            # The names first, so that none leads to a directory that is gone.
            for link in (self._directory / "names").glob("*/*"):
                if link.readlink() == path:
                    link.unlink()
            shutil.rmtree(path, ignore_errors=True)

    def socket(self, namespace: str, host: str, port: int) -> Path | None:
        """Return the unix socket that stands for a port of the pod called `host` in `namespace`; None if no pod is."""
        link = links.link_of(self.names(namespace), host)
        return link.readlink() / str(port) if link.is_symlink() else None

    async def dial(self, uid: str, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a pod: to its unix socket where it has one, else to its address.

        Raises:
          OSError: Nothing listens there.
        """
        path = self._directories.get(uid)
        if path is not None and (path / str(port)).exists():
            reader, writer = await asyncio.open_unix_connection(str(path / str(port)), limit=_BUFFER)
            # Room for several messages, as TCP's grows by itself: with the usual 208 KB each one wakes its reader.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            return reader, writer
        if self._network is None:
            raise ConnectionRefusedError(f"nothing listens on port {port}")
        return await asyncio.open_connection(address, port, limit=_BUFFER)

    def close(self) -> None:
        """Release the network and remove the sockets."""
        if self._claim is not None:
            self._claim.close()
        shutil.rmtree(self._sockets, ignore_errors=True)


def _claim(seed: int) -> tuple[socket.socket | None, int | None]:
    """Claim a 127.N.0.0/16 of no other embedded cluster by a bound socket; None where loopback has one address."""
    for step in range(_NETWORKS):
        number = _FIRST_NETWORK + (seed + step) % _NETWORKS
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind((f"127.{number}.0.1", _CLAIM_PORT))
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                return None, None
        else:
            # The system releases it however this process ends.
            return holder, number
    raise OSError("every loopback network is taken by an embedded cluster")
