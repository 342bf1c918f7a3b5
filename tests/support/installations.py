"""Environments into which the package is installed as its users do: apart from the checkout, and without Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UI_TESTS = ROOT / "labextension" / "ui-tests"
SYSTEM_COMMANDS = ("sh", "bash", "env", "git", "uname", "cc", "ld", "rm")
_VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


@dataclass(frozen=True)
class Installation:
    """A virtual environment that has only what was installed into it, on whose PATH is no Node."""

    directory: Path
    environ: dict[str, str]

    @classmethod
    def make(cls, directory: Path, environ: dict[str, str]) -> Installation:
        venv.create(directory, with_pip=True)
        path = f"{directory / 'bin'}{os.pathsep}{_without_node(directory)}"
        assert shutil.which("node", path=path) is None
        # Compiling all of what is installed takes longer than fetching it, and little of it is imported.
        return cls(directory, {**environ, "PATH": path, "PIP_COMPILE": "0"})

    def run(self, command: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.directory / "bin" / command, *arguments],
            cwd=cwd or self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def pip(self, *arguments: str, cwd: Path | None = None) -> str:
        # Its configuration is in the developer's home.
        environ = {**self.environ, "HOME": os.environ.get("HOME", str(self.directory))}
        words = (*arguments, "--quiet", "--disable-pip-version-check")
        done = replace(self, environ=environ).run("pip", *words, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def versions(self) -> dict[str, str]:
        """The installed distributions by name, without the environment's own tools."""
        found = json.loads(self.run("python", "-c", _VERSIONS).stdout)
        return {name: version for name, version in found.items() if name not in {"pip", "setuptools"}}

    def open_first_notebook(self, notebooks: Path) -> None:
        """Run notebook 01 in the environment's JupyterLab beside the sidebar, in a browser."""
        browser = os.environ.get("PATHWAYS_UI_BROWSER") or shutil.which("chromium") or ""
        node = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        playwright = UI_TESTS / "node_modules" / "@playwright" / "test" / "cli.js"
        if not (browser and node and playwright.is_file()):
            pytest.skip(
                "it needs Chromium, and Node with the packages of labextension/ui-tests, which `make wheel` installs"
            )
        # Not pytest's own directory: its names are long, and a socket's path must be short.
        with tempfile.TemporaryDirectory(prefix="pj-") as name:
            home = Path(name)
            # JupyterLab saves the notebook.
            shutil.copytree(notebooks, home / "notebooks")
            directories = {
                "HOME": name,
                "JUPYTER_RUNTIME_DIR": f"{name}/runtime",
                "JUPYTER_CONFIG_DIR": f"{name}/config",
            }
            there = replace(self, environ={**self.environ, **directories})
            # The browser needs the system's commands.
            path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
            variables = {"PATH": path, "PATHWAYS_UI_BROWSER": browser, "PATHWAYS_UI_ROOT": str(home / "notebooks")}
            try:
                seen = subprocess.run(
                    [node, playwright, "test", "--project=installed"],
                    cwd=UI_TESTS,
                    env={**there.environ, **variables},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            finally:
                ended = there.run("pathways-jupyter", "local", "down", "--yes")
        assert seen.returncode == 0, seen.stdout + seen.stderr
        assert ended.returncode == 0, ended.stderr


def clean_tree(source: Path) -> Path:
    """Copy the tracked files as they are now, without anything that was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    return source


def _without_node(directory: Path) -> Path:
    """Return a directory with the system's commands that a build may use; Node is not one of them."""
    place = directory / "system-commands"
    place.mkdir()
    for command in SYSTEM_COMMANDS:
        if found := shutil.which(command):
            (place / command).symlink_to(found)
    return place
