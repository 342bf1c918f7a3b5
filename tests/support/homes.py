"""Directories of the tests' own, for this process and every one that it starts."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathways_jupyter.base.config import runtime_dir


@contextlib.contextmanager
def entered(home: Path) -> Iterator[Path]:
    """The runtime directory of a user whose home this is, and who has no kubeconfig."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(home / "rt"))
        patch.setenv("JUPYTER_CONFIG_DIR", str(home / "config"))
        patch.setenv("IPYTHONDIR", str(home / "ipython"))
        patch.setenv("HOME", str(home))
        patch.delenv("KUBECONFIG", raising=False)
        yield runtime_dir()
