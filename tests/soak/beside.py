"""Kernels beside the chips on a line that is cut, and whose parts die: no line of output is lost, and nothing is left.

In each round a kernel prints numbered lines. The line is cut, or forgotten as by a NAT that restarts, or this machine
sleeps, for a second up to minutes: afterwards every line is there, once. Or a part dies while the kernel computes on
its slice: the server, the kernel's process here, the process behind it, the kernel in the pod, the pod. Then nothing of
it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
from machine import INSTANCE, Kernel, Machine

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.link import Link
from pathways_jupyter.local.node import programs

CUTS = ("cut", "forgotten", "asleep")
DEATHS = ("server SIGKILL", "process SIGKILL", "near end SIGKILL", "kernel SIGKILL", "pod deleted")
KINDS = (*CUTS, *DEATHS)
LINES_A_SECOND = 50
PATIENCE_SECONDS = 60.0
CONNECT = f"""
import pathways_jupyter, jax.numpy as jnp
pathways_jupyter.connect(tpu={{"{INSTANCE}": 1}}, wait=60, progress=False)
print("connected")
"""
SERVER = """
import sys, time
from jupyter_client import KernelManager
manager = KernelManager(kernel_name=sys.argv[1], connection_file=sys.argv[2])
manager.start_kernel()
print(manager.provisioner.pid, flush=True)
time.sleep(1e6)
"""


def run(machine: Machine, *, rounds: int, longest: float, chance: random.Random, only: Sequence[str]) -> bool:
    """Run `rounds` rounds; prints a table. Whether nothing was lost and nothing left.

    Args:
      longest: Seconds of the longest cut; most are much shorter.
    """
    outcomes: Counter[tuple[str, str]] = Counter()
    with Link(machine.cluster.kubeconfig) as link:
        name = _added(machine, link)
        for number in range(rounds):
            kind, began = only[number % len(only)], time.monotonic()
            if kind in CUTS:
                seconds = min(longest, 1 + chance.expovariate(8 / longest))
                outcome = _cut(machine, link, name, kind, seconds)
            else:
                seconds = chance.uniform(0, 2)
                outcome = _death(machine, name, kind, seconds)
            outcome = outcome or _left(machine)
            outcomes[kind, outcome or "nothing lost, nothing left"] += 1
            said = f"round {number}, {kind} {seconds:.1f} s, took {time.monotonic() - began:.0f} s: {outcome or 'fine'}"
            print(said, flush=True)
    subprocess.run([*_COMMAND, "lab", "down", "--local", "--delete-volume"], check=True, capture_output=True)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{count:5} {kind}: {outcome}")
    return all(outcome.startswith("nothing") for _, outcome in outcomes)


_COMMAND = (sys.executable, "-m", "pathways_jupyter")


def _added(machine: Machine, link: Link) -> str:
    kubeconfig = link.write(machine.runtime.parent / "far")
    place = ["--kubeconfig", str(kubeconfig), "--image", programs.reference(programs.LAB_IMAGE)]
    done = subprocess.run([*_COMMAND, "kernel", "add", *place, "--json"], check=True, capture_output=True)
    return str(json.loads(done.stdout)["name"])


def _cut(machine: Machine, link: Link, name: str, kind: str, seconds: float) -> str:
    """Return what is wrong with the output of a cell after a cut."""
    kernel = Kernel(name)
    try:
        lines = int((seconds + 3) * LINES_A_SECOND)
        request = kernel.begin(
            f"import time\nfor number in range({lines}):\n"
            f"    print(number, 'x' * 500, flush=True); time.sleep({1 / LINES_A_SECOND})"
        )
        time.sleep(1)
        with _interrupted(machine, link, kind):
            time.sleep(seconds)
        text = kernel.finish(request, seconds=seconds + PATIENCE_SECONDS)
        numbers = [int(each.split()[0]) for each in text.splitlines() if each.strip()]
        return "" if numbers == list(range(lines)) else f"{len(numbers)} of {lines} lines, or not in order"
    finally:
        kernel.close()


@contextlib.contextmanager
def _interrupted(machine: Machine, link: Link, kind: str) -> Iterator[None]:
    stopped = _here(machine) if kind == "asleep" else []
    for each in stopped:
        each.suspend()
    if kind == "forgotten":
        link.forget()
    else:
        link.cut()
    try:
        yield
    finally:
        if kind != "forgotten":
            link.open()
        for each in stopped:
            each.resume()


def _death(machine: Machine, name: str, kind: str, seconds: float) -> str:
    """Let a part of a kernel that is connected die."""
    kernel: Kernel | None = None
    server: subprocess.Popen[str] | None = None
    if kind == "server SIGKILL":
        file = machine.runtime.parent / f"kernel-{os.urandom(4).hex()}.json"
        server = subprocess.Popen([sys.executable, "-c", SERVER, name, str(file)], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        server.stdout.readline()
        time.sleep(seconds)
        server.kill()
        server.wait()
        return ""
    kernel = Kernel(name)
    try:
        said = kernel.run(CONNECT)
        if "connected" not in said:
            return f"did not connect: {said[-300:]}"
        kernel.begin("import time\nwhile True: jnp.ones(4).sum().block_until_ready(); time.sleep(0.01)")
        time.sleep(seconds)
        if kind == "process SIGKILL":
            os.kill(kernel.pid, signal.SIGKILL)
        elif kind == "near end SIGKILL":
            for each in _here(machine):
                if each.pid != kernel.pid:
                    each.kill()
        elif kind == "kernel SIGKILL":
            for each in _there():
                each.kill()
        else:
            kubectl = ["kubectl", "--kubeconfig", str(machine.cluster.kubeconfig)]
            pods = ["delete", "pods", "-l", "pathways-jupyter/lab", "--wait=false"]
            subprocess.run([*kubectl, *pods], check=True, capture_output=True)
        ended = _wait(lambda: not kernel.manager.is_alive())
        return "" if ended else "the front end has not learned it"
    finally:
        kernel.close()


def _left(machine: Machine) -> str:
    """Return what is left of a kernel and its sessions."""

    def left() -> str:
        things = [each for each in machine.inventory() if not each.startswith("file ")]
        things += [f"file {each.name}" for each in machine.runtime.glob("*.json")]
        things += [f"kernel {each.pid}" for each in _there()][1:]
        return ", ".join(things)

    return "" if _wait(lambda: not left()) else f"left: {left()}"


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds


def _here(machine: Machine) -> list[psutil.Process]:
    """Return the kernels' processes of this machine, and the one behind them."""
    return [each for each in psutil.process_iter() if "pathways_jupyter.kernel" in _words(each) and _is_ours(each)]


def _there() -> list[psutil.Process]:
    """Return the processes of kernels in the pod, and the one that waits to be the next."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            home = each.environ().get("HOME", "")
            if "pathways_jupyter.kernel.lab_kernel" in " ".join(each.cmdline()) and home.startswith(_directory()):
                found.append(each)
    return found


def _is_ours(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("JUPYTER_RUNTIME_DIR") == os.environ["JUPYTER_RUNTIME_DIR"]
    return False


def _directory() -> str:
    return str(Path(os.environ["JUPYTER_RUNTIME_DIR"]).parent)


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []
