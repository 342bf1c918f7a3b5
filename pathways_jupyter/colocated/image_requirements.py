"""A user's requirements for a sidecar image, locked to exact versions beside those that the sidecar itself needs.

pip chooses the versions for the sidecar's Python without installing anything, and names what contradicts what, before
an image builds for minutes and fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError, PathwaysError

_SERVER = (
    "jax=={jax}",
    "jaxlib=={jax}",
    "numpy>=2.0",
    "ml_dtypes>=0.5.0",
    "cloudpickle>=3.0",
    "protobuf>=4.25",
    "grpcio>=1.60",
)


def server_requirements(jax: str) -> list[str]:
    """Return what the sidecar's own program needs, for this JAX version."""
    return [each.format(jax=jax) for each in _SERVER]


def read(path: Path) -> list[str]:
    """Return the requirements in a file, without comments and blank lines.

    Raises:
      ConfigError: There is no such file, or a line is no requirement of a package.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Name a file of requirements.") from error
    lines = [" ".join(line.split(" #")[0].split()) for line in text.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    for line in found:
        try:
            Requirement(line)
        except InvalidRequirement as error:
            raise ConfigError(
                f"{path.name}: {line!r} is not a requirement: {str(error).splitlines()[0]}",
                hint="One package a line, such as tiktoken>=0.7; options for pip are not read.",
            ) from error
    return found


_PLATFORM = "manylinux_2_28_x86_64"
_OLDER = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")
_LOOSEN = "Loosen a version in requirements.txt, or choose another --jax-version."
_CONFLICT = re.compile(r"^The conflict is caused by:\n(.*?)(?=^Additionally|^To fix this|\Z)", re.DOTALL | re.MULTILINE)
_BROKEN = re.compile(r"^WARNING: Retrying .* after (.*)$", re.MULTILINE)
_ERROR = re.compile(r"^ERROR: (?!Ignored the following|ResolutionImpossible)(.*)$", re.MULTILINE)


def lock(wanted: Sequence[str], server: Sequence[str], python: str) -> list[str]:
    """Return exact versions of `wanted` and all that it needs, beside what the sidecar has.

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
