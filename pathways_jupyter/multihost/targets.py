"""The hosts that a command runs on, and their order; and what a user says about them, before they are looked up."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pathways_jupyter.base import text_files
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import parse_path


@dataclass(frozen=True)
class Selection:
    """The user's selection of hosts; exactly one of the first five is given.

    Attributes:
      hosts: An inventory file, or a list such as ``a,b``.
      tpu_prefix: Name of a TPU VM, or the part before ``-<number>``.
      job: A PathwaysJob.
      service: A service, by name or address.
      session: Address of the service of a session of this machine, with its cluster in `cluster`.
      cluster: The cluster of `job` and `service`.
      keep_going: Whether workers that do not run are left out.
    """

    hosts: str = ""
    tpu_prefix: str = ""
    job: str = ""
    service: str = ""
    session: str = ""
    user: str = ""
    keys: tuple[str, ...] = ()
    known_hosts: str = ""
    accept_new: bool = False
    internal_ip: bool = False
    project: str = ""
    zone: str = ""
    cluster: ConnectConfig | None = None
    keep_going: bool = False


SSH_PORT = 22

_LINE = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^@:\s]+))(?::(?P<port>\d+))?(?P<rest>(?:\s+\S+)*)"
)


@dataclass(frozen=True)
class Target:
    """One host.

    Attributes:
      name: For people: the address, or the pod's name.
      slice: The slice that it belongs to.
      worker: Its number in the slice.
      address: Name or IP address for SSH; empty for a pod.
      user: Name of the user there; empty for the default.
      key_alias: The name under which its host key is known, where that is not its address.
      pod: Its pod; empty for a host that is reached over SSH.
      container: The container in `pod`.
    """

    name: str
    slice: int = 0
    worker: int = 0
    address: str = ""
    port: int = SSH_PORT
    user: str = ""
    key_alias: str = ""
    pod: str = ""
    namespace: str = ""
    container: str = ""

    @property
    def label(self) -> str:
        """Slice and worker, as in ``0-3``."""
        return f"{self.slice}-{self.worker}"

    @property
    def log_name(self) -> str:
        """Name of the file with its output."""
        return f"output_slice_{self.slice:04d}_worker_{self.worker:04d}.txt"


def from_hosts(hosts: str, user: str = "") -> tuple[Target, ...]:
    """Return the hosts of an inventory file, or of a list such as ``a,b,c``.

    Each line of the file is ``[USER@]HOST[:PORT] [slice=N] [worker=N]``; empty lines and comments are skipped. Without
    numbers the hosts are the workers 0, 1, 2 ... of slice 0, or of the given slice.

    Raises:
      ConfigError: A line cannot be read, two hosts have the same number, or there is none.
    """
    path = parse_path(hosts)
    # Not Path.is_file(), which raises for a list that is longer than the name of a file can be.
    is_file = os.path.isfile(path)
    if is_file:
        try:
            lines = text_files.read(path).splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path} cannot be read: {error}.", hint="Name a text file with one host per line: [USER@]HOST[:PORT]."
            ) from error
        where = str(path)
    elif "/" in hosts:
        raise ConfigError(f"There is no file {hosts}.", hint="Write one host per line, or --hosts HOST,HOST.")
    else:
        lines, where = hosts.split(","), "--hosts"
    targets: list[Target] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            targets.append(_of_line(text, f"{where}, line {number}" if is_file else where, targets, user))
    return ordered(targets, where)


def ordered(targets: Iterable[Target], where: str) -> tuple[Target, ...]:
    """Return `targets` by slice and worker.

    Raises:
      ConfigError: There are none, or two have the same slice and worker.
    """
    in_order = sorted(targets, key=lambda each: (each.slice, each.worker))
    if not in_order:
        raise ConfigError(f"{where} names no host.", hint="Write one host per line: [USER@]HOST[:PORT].")
    for one, other in itertools.pairwise(in_order):
        if (one.slice, one.worker) == (other.slice, other.worker):
            raise ConfigError(
                f"{one.name} and {other.name} are both worker {one.worker} of slice {one.slice}.",
                hint="Give each host its own numbers: HOST slice=0 worker=1.",
            )
    return tuple(in_order)


def _of_line(text: str, where: str, before: list[Target], user: str) -> Target:
    match = _LINE.fullmatch(text)
    numbers: dict[str, int] = {}
    for word in match["rest"].split() if match else ():
        name, _, value = word.partition("=")
        if name not in {"slice", "worker"} or not value.isdecimal():
            raise ConfigError(
                f"{where}: {word!r} cannot be read.", hint="A line is [USER@]HOST[:PORT] [slice=N] [worker=N]."
            )
        numbers[name] = int(value)
    if not match or int(match["port"] or SSH_PORT) > 65535:
        raise ConfigError(f"{where}: {text!r} is not a host.", hint="A line is [USER@]HOST[:PORT] [slice=N].")
    address = match["six"] or match["host"]
    port = int(match["port"] or SSH_PORT)
    target = Target(
        name=address if port == SSH_PORT else f"{address}:{port}",
        slice=numbers.get("slice", 0),
        address=address,
        port=port,
        user=match["user"] or user,
    )
    same = [each.worker for each in before if each.slice == target.slice]
    return replace(target, worker=numbers.get("worker", max(same, default=-1) + 1))
