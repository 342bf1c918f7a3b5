"""Sockets of Pathways' programs in a cluster whose pods are processes of one machine.

There are no ports: on a unix socket only the cluster's owner can connect. And there is no name server: each name of a
pod is a link in the directory ``$PATHWAYS_LOCAL_NAMES`` to the directory of that pod's sockets.
"""

from __future__ import annotations

import os
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError

NAMES_VARIABLE = "PATHWAYS_LOCAL_NAMES"
SOCKETS_VARIABLE = "PATHWAYS_LOCAL_SOCKETS"


def own_socket(port: int) -> Path:
    """Return the unix socket that replaces a port of this pod.

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


def resolve(address: str) -> Path:
    """Return the unix socket that replaces a port of a pod, from ``host:port``.

    Raises:
      OSError: The name is unknown at the moment.
    """
    host, port = split(address)
    # The link's target: the path through the link may be too long for a socket.
    return (Path(os.environ.get(NAMES_VARIABLE, "")) / host).readlink() / str(port)
