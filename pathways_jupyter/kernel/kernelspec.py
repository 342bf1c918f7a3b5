"""Kernelspecs of kernels beside the chips: ordinary ones, which every front end reads, in the user's data directory."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kernel import kernel_settings
from pathways_jupyter.kernel.kernel_settings import KernelSettings

_MARK = "pathways_jupyter"
_PROGRAM = (sys.executable, "-m", "pathways_jupyter.kernel", "-f", "{connection_file}")


@dataclass(frozen=True)
class InstalledKernel:
    """A kernelspec of this machine.

    Attributes:
      name: Of its directory, by which programs start it.
      display_name: In the Launcher.
      lab: Of the lab whose pod runs it.
      cluster: As the display name has it.
      path: Its file.
    """

    name: str
    display_name: str
    lab: str
    cluster: str
    path: Path

    def argv(self, connection_file: str) -> list[str]:
        """Return the command line of a kernel with this connection file."""
        words: list[str] = runtime_files.read_json(self.path)["argv"]
        return [word.replace("{connection_file}", connection_file) for word in words]

    def settings(self) -> KernelSettings:
        """Return its cluster and its lab."""
        return kernel_settings.parse(runtime_files.read_json(self.path)["argv"][len(_PROGRAM) :])


def install(name: str, cluster: str, chosen: KernelSettings) -> InstalledKernel:
    """Write a kernelspec, instead of one of this name.

    Raises:
      ConfigError: It cannot be written.
    """
    display_name = f"Python beside the chips ({cluster})"
    spec = {
        # VS Code wants a module as the first words, and knows no kernel provisioners.
        "argv": [*_PROGRAM, *chosen.words()],
        "display_name": display_name,
        "language": "python",
        # As a message: a signal would reach the process on this machine.
        "interrupt_mode": "message",
        "metadata": {"debugger": True, _MARK: {"lab": chosen.lab.name, "cluster": cluster}},
    }
    path = _directory() / name / "kernel.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        runtime_files.write(path, json.dumps(spec, indent=1))
    except OSError as error:
        # Unless an earlier one is in it; Jupyter's own commands fail on one that has none.
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Set JUPYTER_DATA_DIR to a directory that you can write to, also for your front end.",
        ) from error
    return InstalledKernel(name, display_name, chosen.lab.name, cluster, path)


def installed() -> list[InstalledKernel]:
    """Return the kernelspecs that :func:`install` has written."""
    found = []
    for path in sorted(_directory().glob("*/kernel.json")):
        try:
            spec = runtime_files.read_json(path)
            ours = spec["metadata"][_MARK]
            found.append(InstalledKernel(path.parent.name, spec["display_name"], ours["lab"], ours["cluster"], path))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def choose(name: str = "") -> InstalledKernel:
    """Return the kernel of this name; the only one when left out.

    Raises:
      ConfigError: There is none of that name, or more than one and none was named.
    """
    found = installed()
    matching = [each for each in found if not name or each.name == name]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(each.name for each in found)
    if not found:
        raise ConfigError("There is no kernel beside the chips on this machine.", hint="pathways-jupyter kernel add.")
    raise ConfigError(
        f"There is no kernel {name!r}." if name else f"There are {len(found)} kernels.", hint=f"Choose one: {names}."
    )


def remove(kernel: InstalledKernel) -> None:
    """Delete a kernelspec; its running kernels go on.

    Raises:
      ConfigError: It cannot be deleted.
    """
    try:
        shutil.rmtree(kernel.path.parent)
    except OSError as error:
        raise ConfigError(f"{kernel.path.parent} cannot be deleted: {error.strerror or error}.") from error


def _directory() -> Path:
    return Path(jupyter_data_dir()) / "kernels"
