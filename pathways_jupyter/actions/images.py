"""``sidecar build`` and ``operator image``: images of what runs in the cluster, and what installs the operator."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from pathways_jupyter.actions.shell import Action, Contradiction, Shell, Values
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import parse_path, parse_whole_number
from pathways_jupyter.colocated import sidecar_image
from pathways_jupyter.render.view import View, for_kubectl, preformatted
from pathways_jupyter.service import image_build
from pathways_jupyter.service.images import sidecar_for
from pathways_jupyter.service.pathwaysjob import definition, installation
from pathways_jupyter.tunnel.relay.relay_container import DEFAULT_IMAGE


def sidecar(shell: Shell, values: Values) -> View:
    """Write the build context of a sidecar with the packages of a file, and build it unless it is a dry run.

    Raises:
      PathwaysError: The requirements cannot be used, or the image cannot be built.
    """
    requirements = Path(values.get("requirements", "requirements.txt"))
    base = values.get("base_image", "")
    # From the metadata, because importing JAX takes seconds.
    installed = version("jax")
    jax = values.get("jax_version") or (installed if base else sidecar_for(installed) or installed)
    if not values.get("jax_version") and jax != installed:
        shell.say(f"JAX {installed} is installed here, and the released sidecar has {jax}: cells run, with a warning.")
    planned = sidecar_image.plan(
        requirements,
        jax,
        push=values.get("push", ""),
        base=base,
        netrc=parse_path(values["netrc"]) if values.get("netrc") else None,
        folder=Path(values.get("folder", "sidecar-image")),
    )
    use = f"Use it as the image of the container colocated-python-sidecar: {planned.image}"
    return _build(planned, f"with the packages of {requirements}", use, dry_run=bool(values.get("dry_run")))


def operator(shell: Shell, values: Values) -> View:
    """Write the build context of the operator's image, and build it unless it is a dry run.

    Raises:
      PathwaysError: The wheel cannot be read, or the image cannot be built.
    """
    wheel = values.get("wheel")
    planned = installation.image(
        values.get("base_image") or DEFAULT_IMAGE,
        Path(values.get("folder", "operator-image")),
        push=values.get("push", ""),
        wheel=Path(wheel) if wheel else None,
    )
    use = f"Install it: pathways-jupyter operator manifests --image {planned.image} | kubectl apply --server-side -f -"
    return _build(planned, f"with {wheel or 'the release of this version'}", use, dry_run=bool(values.get("dry_run")))


def _build(planned: image_build.Plan, content: str, use: str, *, dry_run: bool) -> View:
    written = image_build.write(planned)
    if not dry_run:
        image_build.build(planned)
    lines = [f"{'Would build' if dry_run else 'Built'} {planned.image}", f"  on {planned.base}", f"  {content}"]
    if dry_run:
        lines.append("  by running:" if planned.runner else "  on a machine with docker or podman, by running:")
        lines += [f"    {command}" for command in planned.how()]
    value = {
        "image": planned.image,
        "base": planned.base,
        "files": [str(each) for each in written],
        "commands": planned.how(),
        "built": not dry_run,
    }
    return preformatted("\n".join([*lines, use]), value)


def manifests(shell: Shell, values: Values) -> View:
    """Return what installs the operator, or a part of it; contacts no cluster.

    Raises:
      ConfigError: An option is missing or invalid.
    """
    part = values.get("part", "")
    if part == "definition":
        return for_kubectl([definition.definition()])
    if part not in {"", "operator"}:
        raise ConfigError(f"There is no part {part}.", hint="There are: definition, operator.")
    if not values.get("image"):
        raise Contradiction("The operator needs an image: --image.", hint="pathways-jupyter operator image builds one.")
    replicas = parse_whole_number("--replicas", values.get("replicas", installation.REPLICAS))
    if not replicas:
        raise ConfigError("There must be at least one replica.", hint="One leads, and the others wait.")
    made = installation.manifests(
        values["image"],
        namespace=values.get("namespace") or installation.NAMESPACE,
        replicas=replicas,
        service_monitor=bool(values.get("service_monitor")),
    )
    return for_kubectl(made if part else [definition.definition(), *made])


ACTIONS: Mapping[str, Action] = {
    "sidecar build": sidecar,
    "operator image": operator,
    "operator manifests": manifests,
}
