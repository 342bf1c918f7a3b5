"""A user's requirements for a sidecar image: compared with what a sidecar is built on, and locked to exact versions.

They are compared before an image builds for minutes and fails. pip chooses the versions for the sidecar's Python,
without installing anything.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_jupyter.errors import ConfigError, PathwaysError

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

_SERVER = (
    "jax=={jax}",
    "jaxlib=={jax}",
    "numpy>=2.0",
    "ml_dtypes>=0.5.0",
    "cloudpickle>=3.0",
    "protobuf>=4.25",
    "grpcio>=1.60",
)


@dataclass(frozen=True)
class Conflict:
    """A requirement that the sidecar cannot satisfy.

    Attributes:
      package: The package's name.
      wanted: Which versions the user asks for.
      server: Which version the sidecar needs.
    """

    package: str
    wanted: str
    server: str

    def __str__(self) -> str:
        return f"{self.package}: requirements.txt asks for {self.wanted}, the sidecar needs {self.server}"


def server_requirements(jax: str) -> list[str]:
    """What the sidecar's own program needs, for this JAX version."""
    return [each.format(jax=jax) for each in _SERVER]


def read(path: Path) -> list[str]:
    """The requirements in a file, without comments and blank lines.

    Raises:
      ConfigError: There is no such file, or a line is no requirement of a package.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Name a file of requirements.") from error
    lines = [" ".join(line.split(" #")[0].split()) for line in text.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    parse(found, path.name)
    return found


def parse(lines: Iterable[str], where: str = "requirements.txt") -> list[Requirement]:
    """Reads requirements.

    Raises:
      ConfigError: A line is an option or is malformed.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    found = []
    for line in lines:
        try:
            found.append(Requirement(line))
        except InvalidRequirement as error:
            raise ConfigError(
                f"{where}: {line!r} is not a requirement: {str(error).splitlines()[0]}",
                hint="One package a line, such as tiktoken>=0.7; options for pip are not read.",
            ) from error
    return found


def conflicts(wanted: Sequence[str], server: Sequence[str], python: str) -> list[Conflict]:
    """The requirements of `wanted` that leave no version that `server` allows too.

    Args:
      wanted: The user's requirements.
      server: The sidecar's.
      python: The sidecar's Python version, e.g. ``3.12``; requirements for others are left out.
    """
    from packaging.markers import default_environment
    from packaging.utils import canonicalize_name

    environment: dict[str, str | Set[str]] = {key: str(value) for key, value in default_environment().items()}
    environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    environment |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    needed = {canonicalize_name(each.name): each.specifier for each in parse(server, "the sidecar's requirements")}
    found = []
    for each in parse(wanted):
        theirs = needed.get(canonicalize_name(each.name))
        if theirs is None or (each.marker is not None and not each.marker.evaluate(environment)):
            continue
        if each.url:
            found.append(Conflict(each.name, each.url, str(theirs) or "its own version"))
        elif not _meet(each.specifier, theirs):
            found.append(Conflict(each.name, str(each.specifier), str(theirs)))
    return found


def _meet(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether some version satisfies both.

    Every range of versions that do begins at zero, at a version that is named, just above it, or behind everything
    that begins with it (``!=1.2.*`` ends at 1.3), so it is enough to try those.
    """
    both = one & other
    candidates = {"0"}
    for version in (each.version.removesuffix(".*") for each in both):
        candidates |= {version, f"{version}.0.0.1"}
        *whole, last = version.split(".")
        if last.isdecimal():
            candidates.add(".".join((*whole, str(int(last) + 1))))
    return any(both.contains(version, prereleases=True) for version in candidates)


_PLATFORM = "manylinux_2_28_x86_64"
_OLDER = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")
_LOOSEN = "Loosen a version in requirements.txt, or choose another --jax-version."
_CONFLICT = re.compile(r"^The conflict is caused by:\n(.*?)(?=^To fix this|\Z)", re.DOTALL | re.MULTILINE)
_BROKEN = re.compile(r"^WARNING: Retrying .* after (.*)$", re.MULTILINE)
_ERROR = re.compile(r"^ERROR: (?!Ignored the following|ResolutionImpossible)(.*)$", re.MULTILINE)


def lock(wanted: Sequence[str], server: Sequence[str], python: str) -> list[str]:
    """Exact versions of `wanted` and all that it needs, beside what the sidecar has.

    Args:
      wanted: The user's requirements.
      server: The sidecar's, which constrain them.
      python: The sidecar's Python version, e.g. ``3.12``.

    Returns:
      Lines ``name==version``, sorted; packages of `server` are left out, as the image has them.

    Raises:
      PathwaysError: pip found no versions that fit together, or failed; the message is pip's own.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="pathways-sidecar-") as name:
        folder = Path(name)
        (folder / "wanted.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
        (folder / "server.txt").write_text("\n".join(server) + "\n", encoding="utf-8")
        done = subprocess.run(
            [
                # Not --quiet, with which pip does not say what a conflict is caused by.
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--progress-bar", "off"),
                *("--disable-pip-version-check", "--no-input", "--report", str(folder / "report.json")),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", python),
                *(part for platform in (_PLATFORM, *_OLDER) for part in ("--platform", platform)),
                *("--target", str(folder / "never"), "--constraint", str(folder / "server.txt")),
                *("--requirement", str(folder / "wanted.txt")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _refused(done.stdout, done.stderr)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    present = {canonicalize_name(Requirement(each).name) for each in server}
    chosen = {canonicalize_name(each["metadata"]["name"]): each["metadata"]["version"] for each in report["install"]}
    return [f"{name}=={version}" for name, version in sorted(chosen.items()) if name not in present]


def _refused(output: str, errors: str) -> PathwaysError:
    """Return the error for a pip that failed, with the reason that it printed."""
    if conflict := _CONFLICT.search(output):
        # The constraints are the sidecar's, which the user has not written.
        caused = conflict[1].replace("The user requested (constraint)", "The sidecar needs")
        reason = "\n".join(line for line in caused.splitlines() if line.strip())
        return PathwaysError(f"These requirements do not fit together on the sidecar:\n{reason}", hint=_LOOSEN)
    # An index that pip cannot reach counts as empty for it.
    if (broken := _BROKEN.findall(errors)) and "(from versions: none)" in errors:
        return PathwaysError(f"pip cannot reach its index: {broken[-1]}", hint="Check the network and pip's settings.")
    reasons = _ERROR.findall(errors) or errors.strip().splitlines()[-1:] or ["It did not say why."]
    return PathwaysError(
        f"pip finds no versions of these requirements for the sidecar: {' '.join(reasons)}", hint=_LOOSEN
    )
