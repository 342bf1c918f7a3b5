"""Build a sidecar image with the user's packages on a released sidecar.

The user's requirements are checked before: the build sees their one file only. uv chooses their versions inside the
build, constrained by what the sidecar itself has. The tag says which Python and JAX are inside, as those of the
released images do, so that a session can compare them with its kernel's before it sends anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from pathways_jupyter.base import outgoing, text_files
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import some
from pathways_jupyter.service import image_build
from pathways_jupyter.service.images import SIDECARS, Versions, no_sidecar, of_image, sidecar_for
from pathways_jupyter.service.names import SIDECAR_REPOSITORY

_NAME = "pathways-sidecar"
_COMMENT = re.compile(r"(^|\s+)#.*")
_OTHER_FILE = re.compile(r"(-r|-c|--requirements?|--constraints?)(?=[\s=]|[^-\s])")
_EDITABLE = re.compile(r"(-e|--editable)\b")
_LOCAL = re.compile(r"(\.{1,2}/|/|~|file:)|[^:]*\.(whl|zip|tar\.gz)$|\.{1,2}$", re.IGNORECASE)
_URL = re.compile(r"[a-z+]+://", re.IGNORECASE)
_HOSTS = re.compile(r"://(?:[^/@]*@)?(localhost|127\.[\d.]+|\[::1\])(?=[:/]|$)", re.IGNORECASE)
_SSH = re.compile(r"\bssh://|\bgit\+git@", re.IGNORECASE)
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


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
    if not base and jax not in SIDECARS:
        released = ", ".join(sorted(SIDECARS, key=Version))
        other = no_sidecar(jax) or f"Use --jax-version {sidecar_for(jax)}."
        raise ConfigError(
            f"No sidecar with JAX {jax} is known here; released are those of JAX {released}.",
            hint=f"{other} A newer release is named with --base-image REPOSITORY/sidecar:TAG.",
        )
    base = base or f"{SIDECAR_REPOSITORY}/sidecar:{SIDECARS[jax]}"
    versions = of_image(base)
    if not (versions.python and versions.jax):
        raise ConfigError(
            f"The tag of {base} does not say its Python and JAX versions.",
            hint=f"It should end like this: -python_3.12-jax_{jax}",
        )
    if versions.jax != jax:
        raise ConfigError(f"{base} has JAX {versions.jax}, not {jax}.", hint=f"--jax-version {versions.jax}")
    requirements = _requirements(path, versions)
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


def _requirements(path: Path, sidecar: Versions) -> str:
    """Return the text of a requirements file that can be installed on a sidecar, as far as that is known here.

    Raises:
      ConfigError: It cannot be read, has what the build lacks or must not keep, or contradicts the sidecar.
    """
    try:
        text = text_files.read(path, names_encoding=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {why}.", hint="Name a file of requirements.") from error
    checked = ((number, _problem(line, sidecar)) for number, line in _lines(text))
    problems = [f"line {number}: {problem}" for number, problem in checked if problem]
    if problems:
        raise ConfigError(f"{path}, {some(problems, 3)}.", hint="Change the file; nothing was written or built.")
    return text


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each requirement or option without comments, with the number of its first line."""
    joined, begin = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if stripped := _COMMENT.sub("", joined).strip():
            yield begin, stripped
        joined, begin = "", number + 1
    if stripped := _COMMENT.sub("", joined).strip():
        yield begin, stripped


def _problem(line: str, sidecar: Versions) -> str:
    if url := outgoing.secret_in(line):
        return (
            f"the password or token for {url} would be readable in the image; write it to a netrc file, and name that "
            "with --netrc"
        )
    if "${" in line:
        return f"{line} names an environment variable, which the build does not have"
    if _OTHER_FILE.match(line):
        return f"{line} names another file, which the build does not have; write its lines here"
    if _EDITABLE.match(line) or _LOCAL.match(line):
        return f"{line} is on this machine, where the build cannot read it; name a release, or a URL"
    if where := _HOSTS.search(line):
        return f"{line} is on this machine ({where[1]}), where the build cannot read it; name a release, or another URL"
    if _SSH.search(line):
        return f"{line} needs an SSH key, which the build does not have; write https:// and use --netrc"
    if line.startswith("-"):
        name, _, value = line.replace("=", " ", 1).partition(" ")
        if name in {"-f", "--find-links"} and "://" not in value:
            return f"{line} is on this machine, where the build cannot read it; name a URL"
        return ""
    if _URL.match(line):
        return ""
    try:
        requirement = _requirement(line)
    except InvalidRequirement:
        return f"{line[:80]!r} is not a requirement"
    if requirement.url is not None:
        return f"{line} is on this machine" if _LOCAL.match(requirement.url) or "://" not in requirement.url else ""
    return _conflict(requirement, sidecar)


def _requirement(line: str) -> Requirement:
    # Options of one requirement, such as --hash, follow it.
    return Requirement(re.split(r"\s--", line)[0])


def _applies(requirement: Requirement, sidecar: Versions) -> bool:
    where = {**_LINUX, "python_version": sidecar.python, "python_full_version": f"{sidecar.python}.0"}
    return requirement.marker is None or requirement.marker.evaluate(where)


def _conflict(needs: Requirement, sidecar: Versions) -> str:
    """Return why `needs` cannot be installed on the sidecar whatever else is: its JAX keeps its version."""
    if not _applies(needs, sidecar):
        return ""
    # Each release of JAX needs the jaxlib of its own version.
    if canonicalize_name(needs.name) in {"jax", "jaxlib"} and not needs.specifier.contains(sidecar.jax, True):
        return f"{needs} contradicts the sidecar, which has JAX {sidecar.jax}"
    return ""
