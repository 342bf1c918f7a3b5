"""Paths of sockets in lower case, so that JAX finds them."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from pathlib import Path

import pytest

from pathways_jupyter.base import runtime_files
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.session import registry

BELOW = "s/12345678/12345"


@pytest.fixture
def capitals(tmp_path, monkeypatch):
    """A runtime directory as that of a user whose name begins with a capital."""
    path = tmp_path / "Anna"
    path.mkdir()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(path))
    return path


def is_found(path: Path) -> bool:
    return os.path.samefile(path, str(path).lower())


def test_a_directory_suits_sockets_if_its_path_is_short_and_means_the_same_in_lower_case(tmp_path, capitals):
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pathways-") as plain:
        assert runtime_files.suits_sockets(Path(plain), BELOW)
        assert not runtime_files.suits_sockets(Path(plain), "d" * 100)
        capital = Path(plain, "A")
        capital.mkdir()
        # As on a file system that ignores case.
        assert runtime_files.suits_sockets(capital, BELOW) == Path(plain, "a").exists()


def test_a_temporary_directory_is_private_and_not_where_it_would_not_suit(capitals, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(capitals))
    made = runtime_files.socket_directory("pathways-", BELOW)
    try:
        assert is_found(made)
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    finally:
        made.rmdir()


def test_the_sockets_of_sessions_and_of_pods_are_found_in_lower_case(capitals):
    control, tunnel = registry.socket_paths(registry.new_session_id())
    network = Network(capitals)
    try:
        assert is_found(tunnel.parent)
        assert control.parent == tunnel.parent
        assert is_found(network.sockets("0123456789"))
    finally:
        network.close()
        if control.parent.name.startswith(registry.TEMPORARY_PREFIX):
            control.parent.rmdir()


def test_what_cannot_be_opened_for_want_of_a_descriptor_counts_as_held(tmp_path):
    path = tmp_path / "alive"
    path.touch()
    assert not runtime_files.is_held(path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        held = runtime_files.is_held(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert held
