"""Address resolution for Pathways' programs in a cluster whose pods are processes of one machine.

There is no name server: pods' names are in the file ``$PATHWAYS_LOCAL_HOSTS``, which changes as pods come and go.
"""

from __future__ import annotations

import hmac
import os
import socket
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError

SECRET_VARIABLE = "PATHWAYS_LOCAL_SECRET"
HOSTS_VARIABLE = "PATHWAYS_LOCAL_HOSTS"
SOCKETS_VARIABLE = "PATHWAYS_LOCAL_SOCKETS"
ADDRESS_VARIABLE = "POD_IP"

LOOPBACK = "127.0.0.1"


def own() -> str:
    """This pod's address; plain loopback outside of a cluster, or where pods have no addresses of their own."""
    return os.environ.get(ADDRESS_VARIABLE) or LOOPBACK


def secret() -> str:
    """The secret that the programs of one cluster share."""
    return os.environ.get(SECRET_VARIABLE, "")


def is_secret(claim: object) -> bool:
    """Whether `claim`, of any type, is that secret."""
    # As bytes, because compare_digest refuses text that is not ASCII.
    return hmac.compare_digest(str(claim).encode("utf-8", "replace"), secret().encode())


def own_socket(port: int) -> Path:
    """The unix socket that replaces a port of this pod.

    Raises:
      ConfigError: This is no pod.
    """
    directory = os.environ.get(SOCKETS_VARIABLE)
    if not directory:
        raise ConfigError(f"{SOCKETS_VARIABLE} is not set: this program runs in pods of the embedded cluster only.")
    return Path(directory) / str(port)


def split(address: str) -> tuple[str, int]:
    """Split ``host:port``.

    Raises:
      ValueError: It is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{address!r} is not of the form HOST:PORT")
    return host, int(port)


def resolve(host: str) -> str:
    """Resolve the name of a pod, or any other name that this machine knows, to an IP address.

    Raises:
      OSError: The name is unknown at the moment.
    """
    listed = os.environ.get(HOSTS_VARIABLE)
    if listed:
        for line in Path(listed).read_text(encoding="ascii").splitlines():
            address, *names = line.split()
            if host in names:
                return address
    return socket.gethostbyname(host)
