"""``sidecar build``: an image of the colocated Python sidecar with the packages of a requirements file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.colocated import image_build
from pathways_jupyter.render.view import View, preformatted


def build(shell: Shell, values: Values) -> View:
    """Write the build context, and build the image unless it is a dry run.

    Raises:
      PathwaysError: The requirements cannot be used, or the image cannot be built.
    """
    requirements = Path(values.get("requirements", "requirements.txt"))
    planned = image_build.plan(
        requirements,
        # From the metadata, because importing JAX takes seconds.
        values.get("jax_version") or version("jax"),
        push=values.get("push", ""),
        base=values.get("base_image", ""),
        folder=Path(values.get("folder", "sidecar-image")),
    )
    written, dry_run = image_build.write(planned), bool(values.get("dry_run"))
    if not dry_run:
        image_build.build(planned)
    lines = [
        f"{'Would build' if dry_run else 'Built'} {planned.image}",
        f"  on {planned.base}",
        f"  with the packages of {requirements}",
    ]
    if dry_run:
        lines.append("  by running:" if planned.runner else "  on a machine with docker or podman, by running:")
        lines += [f"    {command}" for command in planned.how()]
    lines.append(f"Use it as the image of the container colocated-python-sidecar: {planned.image}")
    value = {
        "image": planned.image,
        "base": planned.base,
        "files": [str(each) for each in written],
        "commands": planned.how(),
        "built": not dry_run,
    }
    return preformatted("\n".join(lines), value)


ACTIONS: Mapping[str, Action] = {"sidecar build": build}
