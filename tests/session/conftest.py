from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil
import pytest

DEADLINE = 60.0


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch) -> Path:
    """A runtime directory of the test's own; at the end nothing of any session may be left in it."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    from pathways_jupyter.config import runtime_dir

    return runtime_dir()


def _processes_of(session: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if session in process.cmdline() and process.pid != os.getpid():
                found.append(process)
    return found


@pytest.fixture
def processes_of():
    """Gives every process whose command line names a session."""
    return _processes_of


@pytest.fixture
def nothing_left(runtime):
    """Waits until a session has neither processes nor files."""

    def wait(session: str) -> None:
        _, alive = psutil.wait_procs(_processes_of(session), timeout=DEADLINE)
        assert not alive
        assert [path.name for path in runtime.iterdir() if session in path.name] == []

    return wait


@pytest.fixture
def unreachable(tmp_path) -> Path:
    """A kubeconfig whose server nobody listens at."""
    path = tmp_path / "unreachable.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: x, user: {token: t}}]\n"
    )
    return path
