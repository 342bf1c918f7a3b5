"""The long runs of ``make soak``, kept short: they run, and find what they look for."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent / "soak"


def soak(*arguments):
    return subprocess.run(
        [sys.executable, str(SOAK), *arguments], capture_output=True, text=True, timeout=115, check=False
    )


@pytest.mark.soak
def test_a_round_of_the_leak_matrix_ends_with_a_table():
    done = soak("leaks", "--rounds", "1", "--only", "kernel SIGKILL", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kernel SIGKILL" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    "door", ["api", *(pytest.param(each, marks=pytest.mark.soak) for each in ("records", "kubeconfigs"))]
)
def test_hostile_input_is_refused_at(door):
    done = soak("fuzz", "--seconds", "2", "--only", door, "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {door} | " in done.stdout


@pytest.mark.soak
def test_a_suspend_with_a_death_in_between_ends_with_a_table():
    done = soak("suspends", "--rounds", "1", "--only", "kernel SIGKILL", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kernel SIGKILL" in done.stdout


@pytest.mark.soak
def test_interrupted_cells_end_with_a_table():
    done = soak("interrupts", "--rounds", "6", "--kernels", "1", "--only", "logs rm -f", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| logs rm -f" in done.stdout
