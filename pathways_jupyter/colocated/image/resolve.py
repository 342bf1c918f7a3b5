"""Locks requirements: pip chooses exact versions for the sidecar's Python, without installing anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pathways_jupyter.errors import PathwaysError

_PLATFORM = "manylinux_2_28_x86_64"
_OLDER = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")
_CONFLICT = re.compile(r"^(The conflict is caused by:|ERROR: (?!ResolutionImpossible).*)$")


def lock(wanted: Sequence[str], server: Sequence[str], python: str) -> list[str]:
    """Exact versions of `wanted` and all that it needs, beside what the sidecar has.

    Args:
      wanted: The user's requirements.
      server: The sidecar's, which constrain them.
      python: The sidecar's Python version, e.g. ``3.12``.

    Returns:
      Lines ``name==version``, sorted; packages of `server` are left out, as the image has them.

    Raises:
      PathwaysError: pip found no versions that fit together; the message is pip's own.
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
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
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
            raise PathwaysError(
                f"These requirements do not fit together on the sidecar: {_reason(done.stderr)}",
                hint="Loosen a version in requirements.txt, or choose another --jax-version.",
            )
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    present = {canonicalize_name(Requirement(each).name) for each in server}
    chosen = {canonicalize_name(each["metadata"]["name"]): each["metadata"]["version"] for each in report["install"]}
    return [f"{name}=={version}" for name, version in sorted(chosen.items()) if name not in present]


def _reason(output: str) -> str:
    """The part of pip's output that names the conflicting packages."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if _CONFLICT.match(line):
            found = [each for each in lines[index : index + 6] if "To fix this" not in each]
            return " ".join(found).removeprefix("ERROR: ")
    return lines[-1].removeprefix("ERROR: ") if lines else "pip did not say why."
