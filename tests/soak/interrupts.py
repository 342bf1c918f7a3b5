"""Interrupts every command that blocks at random moments, and looks after each whether cell and kernel are well.

Each kernel is in one of two roles: with a session, or without one, so that it connects. A round begins a cell, sends
SIGINT at a random moment, one time in ten twice, and measures how long the cell goes on. Then another cell has to run,
the thread that sends the kernel's output has to be alive for Python too, and no message may be broken.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from machine import INSTANCE, Kernel, Machine

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import pathways_jobs
import sshd

ENDS_WITHIN_SECONDS = 2.0
SECOND_AFTER_SECONDS = 40.0
"""A cell that goes on for longer is interrupted once more, and counts as one that has lost an Interrupt."""
CELL_SECONDS = 120.0
TWICE = 0.1
TWICE_WITHIN_SECONDS = 0.05

PREPARE = """
%load_ext pathways_jupyter
import faulthandler, os, signal, jax, jax.numpy as jnp, numpy as np, pathways_jupyter
from pathways_jupyter import elastic
faulthandler.register(signal.SIGUSR1, file=open("{stacks}", "w"), all_threads=True)
jnp.ones(3).sum()
os.environ["KUBECONFIG"] = "{kubeconfig}"
"""
CONNECTED = f"""
session = pathways_jupyter.current_session()
if session is None:
    pathways_jupyter.connect(tpu={{"{INSTANCE}": 1}}, local=True, wait=60, progress=False)
elif not session.has_devices:
    session.reconnect()
assert float(jnp.arange(8.0).sum()) == 28.0
"""
FREE = """
session = pathways_jupyter.current_session()
if session is not None:
    assert float(jnp.arange(8.0).sum()) == 28.0, "an Interrupt leaves a session that works, or none"
    session.disconnect()
assert jax.devices()[0].platform == "cpu"
assert float(jnp.arange(8.0).sum()) == 28.0
"""
WELL = "print('well', get_ipython().kernel.iopub_thread.thread.is_alive())"
TRAIN = """
def step(state, batch):
    return {"w": state["w"] + batch.sum()}, {"loss": batch.sum()}

def batches():
    while True:
        yield np.ones((24, 4), np.float32)

elastic.train_loop(step, {"w": np.float32(0)}, batches(), steps=10**9)
"""


@dataclass(frozen=True)
class Kind:
    """A cell that blocks.

    Attributes:
      longest: The Interrupt comes at a random moment before, in seconds.
      often: How often it is chosen, among those of its role.
      connects: Whether its kernel has no session.
    """

    code: str
    longest: float = 1.0
    often: int = 1
    connects: bool = False


KINDS = {
    "logs rm -f": Kind("%pathways logs rm -f", often=4),
    "logs worker -f": Kind("%pathways logs worker -f"),
    "logs proxy -f": Kind("%pathways logs proxy -f"),
    "job logs -f": Kind("%pathways job logs chatter -f", often=8),
    "job apply --wait": Kind("%pathways job apply {job} --wait"),
    "service wait": Kind("%pathways service wait never"),
    "status": Kind("while True:\n    %pathways status", often=4),
    "slices": Kind("while True:\n    %pathways slices", often=2),
    "sessions": Kind("while True:\n    %pathways sessions", often=2),
    "job list": Kind("while True:\n    %pathways job list"),
    "doctor": Kind("while True:\n    %pathways doctor"),
    "multihost run": Kind("%pathways multihost run {hosts} -- bash -c 'while :; do echo line; sleep 0.02; done'", 3.0),
    "%%multihost": Kind("%%multihost {hosts}\nwhile :; do echo line; sleep 0.02; done", 3.0),
    "%%colocated prints": Kind(
        "%%colocated\nimport time\nwhile True:\n    print('line')\n    time.sleep(0.01)", often=2
    ),
    "%%colocated sleeps": Kind("%%colocated\nimport time\ntime.sleep(600)"),
    "@colocated_python": Kind(
        "import time\nfrom jax.experimental import colocated_python\n"
        "@colocated_python.colocated_python\ndef wait(x):\n    time.sleep(3)\n    return x\n"
        "x = jax.device_put(np.ones(4), colocated_python.colocated_cpu_devices(jax.devices())[0])\n"
        "while True:\n    np.asarray(wait(x))",
    ),
    "%%profile": Kind("%%pathways profile\nwhile True:\n    jnp.ones(8).sum().block_until_ready()"),
    "train_loop": Kind(TRAIN, 2.0),
    "reconnect": Kind("%pathways reconnect", 2.0, often=2),
    "disconnect": Kind("%pathways disconnect", 0.3),
    "connect": Kind(f"%pathways connect --local --tpu {INSTANCE}=1", 2.5, connects=True, often=2),
    "connect()": Kind(
        f"s = pathways_jupyter.connect(tpu={{'{INSTANCE}': 1}}, local=True)", 2.5, connects=True, often=2
    ),
    "connect --wait": Kind(f"%pathways connect --local --tpu {INSTANCE}={{slices}} --wait", connects=True, often=4),
}


@dataclass
class Seen:
    """Result of the rounds of one kind.

    Attributes:
      before: Cells that had ended before the Interrupt.
      seconds: How long the others went on.
      second: Those that ended only after another Interrupt.
      never: Those that did not end.
      faults: What was wrong, in a line each.
    """

    before: int = 0
    seconds: list[float] = field(default_factory=list)
    second: int = 0
    never: int = 0
    faults: list[str] = field(default_factory=list)


class Watched(Kernel):
    """A kernel that counts the messages that its front end could not read."""

    def __init__(self, role: str, kubeconfig: str, directory: Path) -> None:
        super().__init__()
        self.broken = 0
        self.stacks = directory / f"stacks-{self.pid}.txt"
        self._prepared = CONNECTED if role == "connected" else FREE
        self.run(PREPARE.format(stacks=self.stacks, kubeconfig=kubeconfig))

    def over(self, request: str, *, seconds: float) -> tuple[str, str] | None:
        """Return the output and the error of a cell, once it is over; None if it still runs after `seconds`."""
        said, error, deadline = "", "", time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.client.get_iopub_msg(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            except ValueError:
                self.broken += 1
                continue
            content = message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            said += str(content.get("text", ""))
            if message["msg_type"] == "error":
                error = f"{content['ename']}: {content['evalue']}"
            if content.get("execution_state") == "idle":
                return said, error
        return None

    def begun(self, request: str) -> None:
        """Wait until a cell runs: ipykernel ignores Interrupts while it is idle, and for a moment after "busy"."""
        while True:
            with contextlib.suppress(queue.Empty, ValueError):
                message = self.client.get_iopub_msg(timeout=CELL_SECONDS)
                if message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input":
                    return

    def stack(self) -> str:
        """Return the stacks of the kernel's threads."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1)
        return self.stacks.read_text()

    def ready(self) -> str:
        """Make sure of the session, or that there is none; returns what is wrong with the kernel, if anything."""
        for code in (WELL, self._prepared):
            over = self.over(self.begin(code), seconds=CELL_SECONDS)
            if over is None:
                return "no later cell answers"
            if over[1] or (code is WELL and "well True" not in over[0]):
                return f"a later cell says {' '.join(over)[-300:]!r}"
        return ""


def slices_for(kernels: int) -> int:
    """Return the number of slices for so many kernels: one each."""
    return kernels


def run(machine: Machine, *, rounds: int, seed: int, kernels: int, only: Sequence[str]) -> bool:
    """Interrupt `rounds` cells, in so many kernels at once; prints a table. Whether all ended and left kernels well."""
    seen = {kind: Seen() for kind in only}
    lock, number = threading.Lock(), iter(range(rounds))
    with tempfile.TemporaryDirectory(prefix="pj-") as name, _around(Path(name), slices_for(kernels)) as names:

        def work(role: str, chance: random.Random) -> None:
            kinds = [kind for kind in only if KINDS[kind].connects == (role == "free")]
            if not kinds:
                return
            kernel = Watched(role, str(machine.cluster.kubeconfig), Path(name))
            try:
                while True:
                    with lock:
                        if (this := next(number, None)) is None:
                            return
                    kind = chance.choices(kinds, [KINDS[each].often for each in kinds])[0]
                    fault = one_round(kernel, kind, seen[kind], chance, names)
                    if fault:
                        seen[kind].faults.append(f"round {this}: {fault}")
                        print(f"round {this}, {kind}: {fault}", flush=True)
                        kernel.close()
                        kernel = Watched(role, str(machine.cluster.kubeconfig), Path(name))
                    if this % 100 == 99:
                        print(f"{this + 1} rounds", flush=True)
            finally:
                kernel.close()

        roles = ["free" if place % 3 == 2 else "connected" for place in range(kernels)]
        chances = [random.Random(seed + place) for place in range(kernels)]
        threads = [threading.Thread(target=work, args=each, daemon=True) for each in zip(roles, chances, strict=True)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    left = machine.wait_until_empty(seconds=60)
    _show(seen)
    print(f"left: {dict(left) or 'nothing'}")
    return not left and not any(each.faults or each.second or each.never for each in seen.values())


def one_round(kernel: Watched, kind: str, seen: Seen, chance: random.Random, names: dict[str, str]) -> str:
    """Interrupt one cell, and return what is wrong after it; empty if nothing is."""
    if fault := kernel.ready():
        return f"before it, {fault}"
    about, broken = KINDS[kind], kernel.broken
    code = about.code
    for name, value in names.items():
        code = code.replace(name, value)
    request = kernel.begin(code)
    kernel.begun(request)
    over = kernel.over(request, seconds=chance.uniform(0, about.longest))
    if over is not None and over[1]:
        return f"it failed: {over[1]}"
    if over is not None:
        seen.before += 1
        return ""
    began = time.monotonic()
    kernel.manager.interrupt_kernel()
    if chance.random() < TWICE:
        time.sleep(chance.uniform(0, TWICE_WITHIN_SECONDS))
        kernel.manager.interrupt_kernel()
    over = kernel.over(request, seconds=SECOND_AFTER_SECONDS)
    if over is None:
        print(f"{kind} goes on after its Interrupt:\n{kernel.stack()}", flush=True)
        seen.second += 1
        kernel.manager.interrupt_kernel()
        over = kernel.over(request, seconds=SECOND_AFTER_SECONDS)
    if over is None:
        seen.never += 1
        return f"it never ended:\n{kernel.stack()}"
    seen.seconds.append(time.monotonic() - began)
    if kernel.broken > broken:
        return f"{kernel.broken - broken} broken messages"
    said, error = over
    if (
        error
        and not error.startswith("KeyboardInterrupt")
        and "nterrupt" not in error
        and "longer following" not in error
    ):
        return f"it ended with {error[-300:]!r} after {said[-200:]!r}"
    if fault := kernel.ready():
        return f"after it, {fault}"
    return ""


@contextlib.contextmanager
def _around(directory: Path, slices: int) -> Iterator[dict[str, str]]:
    """Have a job that prints, a service that waits for nodes, and hosts; yield what cells say of them."""
    job = pathways_jobs.training("chatter", "bash", "-c", "while :; do echo line; sleep 0.005; done")
    path, code = directory / "chatter.json", directory / "code"
    code.mkdir()
    path.write_text(json.dumps(job))
    cli = [sys.executable, "-m", "pathways_jupyter"]
    subprocess.run([*cli, "job", "apply", str(path), "--local"], check=True)
    never = ["service", "deploy", "never", "--tpu", "tpuv5e:4x4", "--gcs-bucket", "gs://b/scratch"]
    subprocess.run([*cli, *never, "--local", "--no-wait", "--skip-checks"], check=True)
    with sshd.farm(directory / "farm", 2) as farm:
        options = f"--hosts {farm.inventory} --key {farm.key} --known-hosts {farm.known_hosts}"
        yield {
            "{hosts}": f"{options} --dir {code} --grace 1 --log-dir {directory}/logs",
            "{job}": str(path),
            "{slices}": str(slices),
        }


def _show(seen: dict[str, Seen]) -> None:
    """Print the table."""
    print(f"\n| {'interrupted':20} | Interrupts | within 2 s | median s | max s | second needed | never | faults |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every: list[float] = []
    for kind, each in seen.items():
        every += each.seconds
        _row(kind, each.seconds, each)
    total = Seen(
        second=sum(each.second for each in seen.values()),
        never=sum(each.never for each in seen.values()),
        faults=[fault for each in seen.values() for fault in each.faults],
    )
    _row("all", every, total)
    print(f"{sum(each.before for each in seen.values())} cells had ended before.")


def _row(kind: str, seconds: list[float], each: Seen) -> None:
    if not seconds and not each.faults and not each.never:
        return
    soon = sum(one <= ENDS_WITHIN_SECONDS for one in seconds)
    middle, most = (statistics.median(seconds), max(seconds)) if seconds else (0.0, 0.0)
    counts = f"{len(seconds) + each.never} | {soon} | {middle:.2f} | {most:.2f} | {each.second} | {each.never}"
    print(f"| {kind:20} | {counts} | {len(each.faults)} |")
