"""``kernel``: kernels beside the chips, in the front ends of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pathways_jupyter.actions import cluster, lab
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base import tasks
from pathways_jupyter.kernel import kernelspec
from pathways_jupyter.kernel.kernel_settings import KernelSettings
from pathways_jupyter.render import parts
from pathways_jupyter.render.view import View, listing, said
from pathways_jupyter.service.names import name_part
from pathways_jupyter.session import clusters

_LONGEST_NAME = 60


def add(shell: Shell, values: Values) -> View:
    """Install a kernelspec for kernels in a cluster; starts no lab.

    Raises:
      ConfigError: A value is invalid, or the kernelspec cannot be written.
    """
    with cluster.Located(cluster.resolve(cluster.named(values))) as where:
        # Its sessions choose their own slices.
        pass
    spec = lab.spec_of(values, where, "kernel add")
    if not spec.image:
        shell.say(
            "Without --image the kernel finds a lab that runs, and cannot start one: docs/in-cluster.md has an image."
        )
    resolved = tasks.run(clusters.resolve(where))
    place = "embedded cluster" if where.local else resolved.name
    name = values.get("name", "")
    shown = f"{place}, {name}" if name else place
    full = name_part(f"pathways-{shown}", 2 * _LONGEST_NAME)
    short = (
        full
        if len(full) <= _LONGEST_NAME
        else f"{full[: _LONGEST_NAME - 7]}-{hashlib.sha256(full.encode()).hexdigest()[:6]}"
    )
    chosen = KernelSettings(where, spec)
    others = [each for each in kernelspec.installed() if each.name == short and each.settings() != chosen]
    made = kernelspec.install(short, shown, chosen)
    instead = " It replaces the one of this name, which had other settings." if others else ""
    return said(f"In the Launcher and in VS Code: {made.display_name}.{instead}", made)


def list_(shell: Shell, values: Values) -> View:
    """Return the kernelspecs that were added."""
    found = kernelspec.installed()
    rows = [(each.name, each.display_name, each.lab) for each in found]
    return listing(found, parts.table(("name", "kernel", "lab"), rows), none="None; pathways-jupyter kernel add.")


def remove(shell: Shell, values: Values) -> View:
    """Remove a kernelspec.

    Raises:
      ConfigError: There is none of that name, or more than one and none was named.
    """
    kernel = kernelspec.choose(values.get("name", ""))
    kernelspec.remove(kernel)
    return said(f"{kernel.display_name} is no longer in the Launcher.", kernel)


ACTIONS: Mapping[str, Action] = {"kernel add": add, "kernel list": list_, "kernel remove": remove}
