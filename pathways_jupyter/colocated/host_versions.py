"""Compare this process's versions with the hosts', component by component.

Every host describes itself on request. One whose JAX cannot even read a request is sent nothing but an error to raise,
which contains its versions.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pathways_jupyter.colocated.channel import channel
from pathways_jupyter.colocated.errors import CheckError, name_hosts
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.ship import VERSIONS, VERSIONS_MARK
from pathways_jupyter.service.images import agree, no_sidecar

_COMPONENTS = ("jax", "jaxlib", "numpy", "cloudpickle")
_REPORT = re.compile(re.escape(VERSIONS_MARK) + r" (\{[^{}]*\})")
_NEEDED = {"python": {"cloudpickle"}, "jax": {"jax", "jaxlib"}}
"""The modules that a pickle refers to when another minor version of a component cannot read it."""


@dataclass(frozen=True)
class Difference:
    """One component whose version is not the same here and on hosts.

    Attributes:
      component: ``python``, ``jax``, ``jaxlib``, ...
      here: The version in this process.
      there: The version on the hosts.
      hosts: Their indices.
      severe: Whether code cannot be sent between the two.
    """

    component: str
    here: str
    there: str
    hosts: tuple[int, ...]
    severe: bool

    def __str__(self) -> str:
        return f"{self.component} {self.there} on {name_hosts(self.hosts)}, {self.here} here"


def differences(here: Mapping[str, str], there: Mapping[int, Mapping[str, str]]) -> list[Difference]:
    """Compare versions component by component.

    Args:
      here: Version by component, ``python`` among them.
      there: The same by host index; a component that a host does not name is not compared.

    Returns:
      Severe ones first: another minor version of Python, as functions travel as its byte code, and another minor
      version of JAX, whose parts have no format that outlives one.
    """
    by_version: dict[tuple[str, str], list[int]] = {}
    for index, versions in there.items():
        for component, version in versions.items():
            if component in here and version and version != here[component]:
                by_version.setdefault((component, version), []).append(index)
    listed = [
        Difference(
            name,
            here[name],
            version,
            tuple(indices),
            severe=name in _NEEDED and not agree(here[name], version, parts=2),
        )
        for (name, version), indices in by_version.items()
    ]
    return sorted(listed, key=lambda each: (not each.severe, each.component))


@functools.cache
def here() -> dict[str, str]:
    """Return the versions of what takes part in a colocated call, in this process."""
    import platform
    from importlib import metadata

    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _COMPONENTS}}


def unreadable(different: Iterable[Difference], modules: Collection[str]) -> list[Difference]:
    """Return the differences with which hosts cannot read a pickle that refers to these modules."""
    return [each for each in different if each.severe and not _NEEDED[each.component].isdisjoint(modules)]


def refuse(different: Sequence[Difference], because: Sequence[Difference]) -> CheckError:
    """Return the error of a call that hosts could not read.

    Args:
      different: All differences.
      because: Those that prevent the call.
    """
    needed = {}
    for each in because:
        minor = ".".join(each.there.split(".")[:2])
        needed[each.component] = f"Python {minor}" if each.component == "python" else f"jax=={each.there}"
    kernel = " and ".join(needed.values())
    build = "or a sidecar made for this one: pathways-jupyter sidecar build --help"
    none = no_sidecar(here()["jax"])
    return CheckError(
        f"What is made here does not run on the hosts: {'; '.join(map(str, different))}. Nothing was run.",
        hint=f"Use a kernel with {kernel}. {none}" if none else f"Use a kernel with {kernel}, {build}",
    )


def query_versions(hosts: Sequence[Host]) -> dict[int, dict[str, str]]:
    """Return the versions of hosts that understand no other request, by host index, if they answer."""
    versions = {}
    for host in hosts:
        to = channel((host,))
        spec = to.row_spec()
        try:
            to.compiled(VERSIONS, lambda request, spec=spec: spec)(to.request({}, ()))
        except Exception as error:
            match = _REPORT.search(str(error))
            if match:
                versions[host.index] = json.loads(match.group(1))
    return versions
