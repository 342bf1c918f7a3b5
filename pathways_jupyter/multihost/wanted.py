"""What the user says about hosts, before they are looked up."""

from __future__ import annotations

from dataclasses import dataclass

from pathways_jupyter.config import ConnectConfig


@dataclass(frozen=True)
class Wanted:
    """What the user says about hosts; exactly one of the first five is given.

    Attributes:
      hosts: An inventory file, or a list such as ``a,b``.
      tpu_prefix: Name of a TPU VM, or the part before ``-<number>``.
      job: A PathwaysJob.
      service: A service, by name or address.
      session: Address of the service of a session of this machine, with its cluster in `cluster`.
      cluster: The cluster of `job` and `service`.
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
