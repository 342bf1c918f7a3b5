"""Build a sidecar image with the user's packages on a released sidecar.

uv chooses their versions inside the build, constrained by what the sidecar itself has. The tag says which Python and
JAX are inside, as those of the released images do, so that a session can compare them with its kernel's before it sends
anything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.colocated import sidecar_requirements
from pathways_jupyter.service import image_build
from pathways_jupyter.service.images import agree, of_image
from pathways_jupyter.service.names import SIDECAR_REPOSITORY

RELEASES: Mapping[str, str] = {"0.10.0": "20260423-python_3.12-jax_0.10.0"}
"""Tags of released sidecars, by their JAX."""
_NAME = "pathways-sidecar"


def suitable(jax: str) -> str:
    """Return the JAX of the released sidecar that notebooks with `jax` can use; `jax` if there is none.

    The minor version has to be the same; what else differs is a warning when a cell runs.
    """
    return next((each for each in sorted(RELEASES, key=Version, reverse=True) if agree(each, jax, parts=2)), jax)


def plan(
    path: Path,
    jax: str,
    *,
    push: str = "",
    base: str = "",
    netrc: Path | None = None,
    folder: Path = Path("sidecar-image"),
) -> image_build.Plan:
    """Check everything that can be checked without building; write nothing.

    Args:
      path: The user's requirements.
      jax: The JAX version.
      push: Repository to push to, e.g. ``us-docker.pkg.dev/PROJECT/REPOSITORY``; empty keeps the image here.
      base: The sidecar image to build on; empty for the released one of that JAX version.
      netrc: A file with the passwords of package indices; the build reads it, and the image does not keep it.
      folder: Where the build context goes.

    Raises:
      ConfigError: No released sidecar has that JAX version, or the requirements cannot be installed there.
    """
    if not base and jax not in RELEASES:
        released = ", ".join(sorted(RELEASES, key=Version))
        raise ConfigError(
            f"No sidecar with JAX {jax} is known here; released are those of JAX {released}.",
            hint=f"Name a sidecar of JAX {jax} with --base-image REPOSITORY/sidecar:TAG, or use one of these versions.",
        )
    base = base or f"{SIDECAR_REPOSITORY}/sidecar:{RELEASES[jax]}"
    versions = of_image(base)
    if not (versions.python and versions.jax):
        raise ConfigError(
            f"The tag of {base} does not say its Python and JAX versions.",
            hint=f"It should end like this: -python_3.12-jax_{jax}",
        )
    if versions.jax != jax:
        raise ConfigError(f"{base} has JAX {versions.jax}, not {jax}.", hint=f"--jax-version {versions.jax}")
    requirements = sidecar_requirements.read(path, versions)
    if netrc is not None and not netrc.is_file():
        raise ConfigError(f"There is no file {netrc}.", hint="Name a netrc file.")
    tag = f"{time.strftime('%Y%m%d')}-python_{versions.python}-jax_{jax}"
    image = f"{push.rstrip('/')}/{_NAME}:{tag}" if push else f"{_NAME}:{tag}"
    install = f"{'NETRC=/run/secrets/netrc ' if netrc else ''}uv pip install --no-cache"
    dockerfile = [
        f"FROM {base}",
        f'LABEL pathways-jupyter.python="{versions.python}" pathways-jupyter.jax="{versions.jax}"',
        "WORKDIR /app",
        # Mounted, so that no layer has them.
        "RUN --mount=type=bind,source=requirements.txt,target=/tmp/requirements.txt \\",
        *([" --mount=type=secret,id=netrc,required=true \\"] if netrc else []),
        # What the sidecar has must stay as it is: a requirement that contradicts it fails the build, with uv's reason.
        " uv pip freeze | grep '==' > /tmp/sidecar.txt \\",
        f" && {install} --constraint /tmp/sidecar.txt --requirements /tmp/requirements.txt \\",
        " && uv pip check && rm /tmp/sidecar.txt",
    ]
    files = {"Dockerfile": "".join(f"{line}\n" for line in dockerfile), "requirements.txt": requirements}
    secrets = {"netrc": netrc.absolute()} if netrc is not None else {}
    return image_build.plan(image, base, folder, files, push=bool(push), secrets=secrets)
