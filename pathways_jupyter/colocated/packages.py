"""How to give the hosts a package that a cell wants: not the same in the embedded cluster as on a real one."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

from pathways_jupyter import blocking
from pathways_jupyter.colocated.image_build import RELEASES
from pathways_jupyter.colocated.memory import Facts
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.service import names


def advice(modules: Sequence[str], facts: Mapping[int, Facts]) -> str:
    """What to do to have `modules` on hosts.

    Args:
      modules: Top-level names that cannot be imported there.
      facts: What is known of the hosts, by index.
    """
    wanted = shlex.join(distributions(modules))
    first = next(iter(facts.values()))
    if first.embedded:
        # The hosts of the embedded cluster run the Python that started the cluster, which may be another than this one.
        python = shlex.quote(first.executable)
        return f"The hosts run {python} here: {python} -m pip install {wanted}; then run the cell again."
    return (
        f"Write {wanted} to requirements.txt, build a sidecar image with it, and give it to the service's workers:"
        f" {build_command(first.versions['jax'], sidecar_image)}"
    )


def distributions(modules: Sequence[str]) -> list[str]:
    """What to install for `modules`: what gives them to this process, where it has them; else the same names."""
    known = metadata.packages_distributions()
    return [known.get(name, [name])[0] for name in modules]


def build_command(jax: str, image: Callable[[], str]) -> str:
    """The command that builds a sidecar for JAX of that version.

    Args:
      image: Gives the image of the sidecars that run now; it is the base where none with that JAX was released.
    """
    command = ["pathways-jupyter", "sidecar", "build", "--jax-version", jax]
    base = "" if jax in RELEASES else image()
    return shlex.join([*command, *(["--base-image", base] if base else [])])


def sidecar_image() -> str:
    """The image of the session's sidecars; empty where it cannot be found out."""
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.kube.objects import PODS, list_
    from pathways_jupyter.session import reach
    from pathways_jupyter.session.kernel.session import current

    session = current()
    if session is None:
        return ""
    record = session.record

    async def ask() -> str:
        async with Client(await reach.again(record)) as client:
            pods = (await list_(client, PODS, namespace=record.namespace, labels=names.JOBSET_NAME_LABEL)).items
        found = [
            str(container.get("image") or "")
            for pod in pods
            for container in (*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ()))
            if container.get("name") == names.SIDECAR_CONTAINER
        ]
        return next(iter(found), "")

    # It only makes the advice better.
    with contextlib.suppress(PathwaysError):
        return str(blocking.run(ask()))
    return ""
