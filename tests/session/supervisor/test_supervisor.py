from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from waits import wait_until

import pathways_jupyter
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ClusterError, ConfigError, SessionError
from pathways_jupyter.session.kernel import session, spawn
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
SUPPORT = Path(__file__).parents[2] / "support"
ONE = {"tpuv6e:2x2": 1}


def test_asking_for_nothing_starts_no_process(runtime):
    before = set(runtime.iterdir())
    with pytest.raises(ConfigError, match="No TPU slices"):
        session.attempt_connect(ConnectConfig())
    assert set(runtime.iterdir()) <= before


def test_an_attempt_that_is_dropped_before_it_is_iterated_starts_no_supervisor(runtime):
    files, processes = set(runtime.iterdir()), set(psutil.Process().children())
    dropped = session.attempt_connect(ConnectConfig(instances=ONE))
    dropped.cancel()
    with pytest.raises(SessionError, match="cancelled"):
        _ = dropped.session
    session.attempt_connect(ConnectConfig(instances=ONE))
    assert set(runtime.iterdir()) <= files
    assert set(psutil.Process().children()) <= processes


def test_an_attempt_is_given_up_without_waiting_for_a_supervisor_that_is_still_starting(monkeypatch, nothing_left):
    monkeypatch.setattr(spawn, "SUPERVISOR", "hanging_supervisor")
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    connecting = session.attempt_connect(ConnectConfig(instances=ONE))

    def press() -> None:
        wait_until(lambda: connecting._link is not None)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt), connecting:
        list(connecting)
    pressing.join()
    nothing_left(connecting._link.session)
    assert connecting._link.ended


def test_without_a_kubeconfig_nothing_is_changed_and_nothing_left(nothing_left):
    connecting = session.attempt_connect(ConnectConfig(instances=ONE))
    with pytest.raises(ConfigError, match="no kubeconfig") as refused:
        list(connecting)
    assert "--local" in refused.value.hint
    nothing_left(connecting._link.session)
    assert session.current() is None


def test_an_unreachable_api_server_is_reported_within_seconds(unreachable, nothing_left):
    connecting = session.attempt_connect(ConnectConfig(instances=ONE, kubeconfig=unreachable))
    with pytest.raises(ClusterError, match="cannot be reached: connection refused"):
        list(connecting)
    nothing_left(connecting._link.session)


@pytest.mark.parametrize("has_ended", [False, True], ids=["starting", "ended before it is asked for anything"])
def test_a_supervisor_that_cannot_start_says_why(monkeypatch, nothing_left, has_ended):
    start = spawn._start

    def started():
        link = start()
        if has_ended:
            link._process.wait(DEADLINE)
        return link

    monkeypatch.setattr(spawn, "SUPERVISOR", "pathways_jupyter.session.missing")
    monkeypatch.setattr(spawn, "_start", started)
    connecting = session.attempt_connect(ConnectConfig(instances=ONE))
    with pytest.raises(SessionError, match=r"No module named pathways_jupyter\.session\.missing"):
        list(connecting)
    nothing_left(connecting._link.session)


def test_a_file_with_a_standard_modules_name_in_the_notebooks_directory_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "asyncio.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no kubeconfig"):
        session.connect(ConnectConfig(instances=ONE))


def test_only_start_may_come_first(nothing_left):
    link = spawn.supervisor()
    with pytest.raises(SessionError, match="was sent before start"):
        link.answer(link.ask(Method.STATUS), patience=DEADLINE)
    assert link.close(patience=DEADLINE)
    nothing_left(link.session)


def test_a_supervisor_prepared_ahead_is_the_next_one_used():
    pathways_jupyter.prepare()
    spawn.prepare()
    ahead = spawn._standby
    assert spawn.supervisor() is ahead
    assert spawn._standby is None
    assert ahead.close(patience=DEADLINE)


def test_a_supervisor_prepared_ahead_has_the_environment_and_directory_of_the_connect(tmp_path, monkeypatch):
    spawn.prepare()
    ahead = spawn._standby
    (tmp_path / "mine").write_text("contexts: [")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "mine")
    with pytest.raises(ConfigError, match="mine"):
        session.connect(ConnectConfig(instances=ONE))
    assert ahead.ended


def test_a_prepared_supervisor_that_died_is_not_used():
    spawn.prepare()
    dead = spawn._standby
    os.kill(dead._process.pid, signal.SIGKILL)
    assert dead.close(patience=DEADLINE)
    link = spawn.supervisor()
    assert link is not dead
    assert link.close(patience=DEADLINE)


def test_a_prepared_supervisor_ends_with_the_kernel_that_never_used_it(nothing_left):
    code = "from pathways_jupyter.session.kernel import spawn; spawn.prepare(); print(spawn._standby.session); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as kernel:
        session = kernel.stdout.readline().decode().strip()
        kernel.kill()
    nothing_left(session)
