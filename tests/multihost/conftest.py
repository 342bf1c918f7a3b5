"""Hosts for these tests: sshd processes on loopback."""

import tempfile
from pathlib import Path

import pytest
import sshd
from runs import Lab


@pytest.fixture(scope="module")
def farm():
    # Not pytest's own directory, so that another user can be given access to it.
    with tempfile.TemporaryDirectory(prefix="pj-") as name, sshd.farm(Path(name) / "farm", 3) as made:
        yield made


@pytest.fixture
def lab(farm, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield Lab(farm, tmp_path)
    assert farm.left() == []
