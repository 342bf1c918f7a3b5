"""Arguments and standard streams of the operator's program."""

import asyncio
import os
import subprocess
import sys

import pytest

from pathways_jupyter.operator import main

DEADLINE = 60.0
NOWHERE = "/nonexistent/kubeconfig"


@pytest.mark.parametrize(
    ("option", "values", "range_"),
    [
        ("--lease-seconds", ["inf", "nan", "0", "-1", "0.5", "1e9", "soon"], "from 1 to 3600"),
        ("--interval", ["inf", "nan", "0", "-1", "1e9", "soon"], "from 1 to 86400"),
        ("--metrics-port", ["-1", "65536", "99999999", "http", "1.5"], "from 1 to 65535"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_with_its_range(option, values, range_, capsys):
    for value in values:
        with pytest.raises(SystemExit) as refused:
            main.main([f"{option}={value}", "--kubeconfig", NOWHERE])
        assert refused.value.code == 2
        said = capsys.readouterr().err
        assert f"argument {option}: must be a " in said
        assert range_ in said
        assert said.rstrip().endswith(f"not {value}")


@pytest.mark.parametrize("argument", ["--lease-seconds=1", "--lease-seconds=3600", "--interval=1", "--metrics-port=0"])
def test_the_ends_of_a_range_are_taken(argument, capsys):
    assert main.main([argument, "--kubeconfig", NOWHERE]) == 1
    assert "There is no kubeconfig" in capsys.readouterr().err


def start(closing, *arguments):
    """The program as the image starts it, with streams that its caller has closed."""
    program = [sys.executable, "-m", "pathways_jupyter.operator.main", *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *program],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "KUBECONFIG": NOWHERE},
        check=False,
    )


def test_what_is_for_a_closed_standard_error_goes_nowhere_else():
    done = start("2>&-", "--kubeconfig", NOWHERE)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_with_closed_standard_streams_it_sweeps(bench, closing):
    async with bench.client() as client:
        await bench.install(client)
        done = await asyncio.to_thread(start, closing, "--kubeconfig", str(bench.kubeconfig()), "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert ("sweeping all namespaces" in done.stdout) == (">&-" not in closing.replace("2>&-", ""))
