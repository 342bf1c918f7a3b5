"""Settings of a kernelspec: the cluster, and the lab that runs its kernels. Words of a command line, both ways."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.service.lab.manifests import LabSpec

_CLUSTER = ("kubeconfig", "context", "cluster", "project", "region", "namespace")
_LAB = ("image", "cpu", "memory", "volume", "storage_class", "user")


@dataclass(frozen=True)
class KernelSettings:
    """A kernel beside the chips.

    Attributes:
      where: The cluster.
      lab: The lab, whose namespace is the cluster's default when empty.
    """

    where: ConnectConfig
    lab: LabSpec

    def words(self) -> list[str]:
        """Return the arguments of the kernelspec's program."""
        given = {"lab": self.lab.name, **{name: getattr(self.where, name) for name in _CLUSTER}}
        given |= {name: getattr(self.lab, name) for name in _LAB}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]
        return [*options, *(["--local"] if self.where.local else [])]


def parse(arguments: Sequence[str]) -> KernelSettings:
    """Return what :meth:`KernelSettings.words` has written.

    Raises:
      SystemExit: They are none.
    """
    parser = argparse.ArgumentParser(prog="python -m pathways_jupyter.kernel")
    parser.add_argument("--lab", required=True)
    parser.add_argument("--local", action="store_true")
    for name in (*_CLUSTER, *_LAB):
        parser.add_argument(f"--{name.replace('_', '-')}", default="")
    found = vars(parser.parse_args(arguments))
    where = ConnectConfig(local=found["local"], **{name: found[name] for name in _CLUSTER})
    given = {name: found[name] for name in _LAB if found[name]}
    lab = LabSpec(**{"name": found["lab"], "namespace": where.namespace, "image": "", **given})
    return KernelSettings(where, lab)


def cluster_settings(where: ConnectConfig) -> dict[str, object]:
    """Return the settings by which this machine names the cluster."""
    return {name: value for name, value in dataclasses.asdict(where).items() if name in (*_CLUSTER, "local")}
