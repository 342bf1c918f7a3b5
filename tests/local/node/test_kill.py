from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pathways_jupyter.local.node.environment import install_kill, with_kill


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    install_kill(tmp_path / "bin")
    return tmp_path / "bin"


@pytest.mark.parametrize(
    "command",
    [
        ["/bin/sh", "-c", "kill -s SIGILL 1"],
        ["sh", "-c", "kill -s ILL 1"],
        ["sh", "-ec", "echo before; kill -4 1"],
        ["kill", "-SIGILL", "1"],
        ["sh", "-c", "kill -n 4 -- -1"],
    ],
)
def test_kill_one_reaches_the_main_process(programs, command):
    main = subprocess.Popen(["sleep", "600"], start_new_session=True)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PATHWAYS_LOCAL_MAIN_PID": str(main.pid)}
    subprocess.run(with_kill(command), env=environment, check=True, stdout=subprocess.DEVNULL)
    assert main.wait(60) == -signal.SIGILL


def test_other_commands_stay_as_they_are():
    for command in (["sh"], ["sh", "-l", "x"], ["python", "-c", "kill"]):
        assert with_kill(command) == command


@pytest.mark.parametrize("arguments", [[], ["-s"], ["-s", "SIGNONE", "1"], ["one"], ["1"]])
def test_wrong_usage_and_a_process_that_is_gone_are_reported(programs, arguments):
    environment = {"PATHWAYS_LOCAL_MAIN_PID": "4194304"}
    done = subprocess.run([programs / "kill", *arguments], env=environment, capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stderr
