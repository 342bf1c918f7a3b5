"""The demo's steps: a cluster, a connection, training on two slices, the loss and recovery of one, and a clean end.

It uses the same entry points as a notebook and checks every result: a step fails when its claim does not hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pathways_jupyter.base.config import resolve
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.render import text
from pathways_jupyter.render.text import Mark
from pathways_jupyter.session import clusters

if TYPE_CHECKING:
    from rich.console import Console

    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.session.kernel.session import Session

INSTANCES = {"tpuv6e:2x2": 2}
_NAME = "demo"
_RUNTIME = "JUPYTER_RUNTIME_DIR"
_PATIENCE = 60.0
_ENDING = 10.0
_IDLE = 300.0
_BROKEN = "DATA_LOSS"


class Broken(PathwaysError):
    """The result of a step is not the expected one."""


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of one step.

    Attributes:
      seconds: How long it took.
      held: Whether its checks passed.
      report: Its output, line by line.
    """

    title: str
    seconds: float
    held: bool
    report: tuple[str, ...]


def run(console: Console, steps: list[Step] | None = None) -> bool:
    """Run the demo on `console`; return whether every step succeeded.

    Args:
      steps: Receives every step as it ends.

    Raises:
      KeyboardInterrupt: Raised after the cleanup.
    """
    with _private_runtime_directory():
        story = _Story(console, [] if steps is None else steps)
        try:
            story.play()
        except PathwaysError as error:
            console.print(f"\n[bold red]The demo failed:[/] {error}", highlight=False)
            if error.hint:
                console.print(f"  {error.advice(Face.TERMINAL)}", highlight=False)
            return False
        finally:
            story.clean_up()
    console.print(f"\n[bold green]Completed in {text.duration(time.monotonic() - story.began)}.[/]")
    console.print("In a notebook: [bold]%load_ext pathways_jupyter[/] and [bold]%pathways connect --local[/]")
    return True


@contextlib.contextmanager
def _private_runtime_directory() -> Iterator[None]:
    """Keep the demo's cluster and session apart from the user's own, and remove their files at the end."""
    before = os.environ.get(_RUNTIME)
    with tempfile.TemporaryDirectory(prefix="pathways-", ignore_cleanup_errors=True) as directory:
        os.environ[_RUNTIME] = directory
        try:
            yield
        finally:
            if before is None:
                del os.environ[_RUNTIME]
            else:
                os.environ[_RUNTIME] = before


class _Story:
    """The steps, and the state that they share."""

    def __init__(self, console: Console, steps: list[Step]) -> None:
        self.began = time.monotonic()
        self._steps = steps
        self._console = console
        self._cluster: Any = None
        self._session: Session | None = None
        self._config = resolve({"tpu": INSTANCES})
        self._processes: list[psutil.Process] = []

    def play(self) -> None:
        """Run all steps."""
        self._console.print("[bold]Pathways on this machine: two slices of four TPU chips, simulated on CPUs[/]\n")
        self._cluster_up()
        session = self._connect()
        self._devices(session)
        self._matmul(session)
        self._lose_a_slice(session, self._train(session))
        self._disconnect(session)
        self._nothing_left(session)
        self._cluster_down()

    def clean_up(self) -> None:
        """End what a failed step has left running."""
        if self._session is not None:
            with contextlib.suppress(PathwaysError):
                self._session.disconnect()
        # Even if starting the cluster was interrupted halfway.
        _down()

    @contextlib.contextmanager
    def _step(self, title: str) -> Iterator[list[str]]:
        began = time.monotonic()
        report: list[str] = []
        try:
            with self._console.status(f"{title} ...") if self._console.is_terminal else contextlib.nullcontext():
                yield report
        except BaseException:
            self._line(Mark.FAIL, "red", title, began, report)
            raise
        self._line(Mark.OK, "green", title, began, report)

    def _line(self, mark: Mark, colour: str, title: str, began: float, report: list[str]) -> None:
        seconds = time.monotonic() - began
        self._steps.append(Step(title, round(seconds, 3), mark is Mark.OK, tuple(report)))
        self._console.print(f"[{colour}]{mark}[/] {title:<42} {text.duration(seconds):>10}", highlight=False)
        for line in report:
            self._console.print(f"    {line}", highlight=False, markup=False, style="dim", soft_wrap=True)

    def _cluster_up(self) -> None:
        from pathways_jupyter.local import cluster

        with self._step("Start the embedded cluster") as report:
            self._cluster = cluster.up(INSTANCES, name=_NAME, idle_seconds=_IDLE, fast_heal=True)
            self._config = dataclasses.replace(
                self._config, kubeconfig=str(self._cluster.kubeconfig), context=self._cluster.context
            )
            report.append(f"{text.instances(INSTANCES)}, a Kubernetes API, and a Pathways service")

    def _connect(self) -> Session:
        from pathways_jupyter.session.kernel import session

        with self._step("Connect: a proxy of our own, and a tunnel") as report:
            connecting = session.start(self._config)
            for event in connecting:
                if event.kind is EventKind.STAGE:
                    report.append(event.message)
            self._session = connecting.session
            daemon = psutil.Process(self._cluster.pid)
            supervisor = psutil.Process(self._session.record.pid)
            self._processes = [supervisor, daemon, *daemon.children(recursive=True)]
        return self._session

    def _devices(self, session: Session) -> None:
        import jax

        with self._step("See the devices") as report:
            for index, devices in session.slices().items():
                places = " ".join(str(tuple(device.coords[:2])) for device in devices)
                report.append(f"slice {index}: {len(devices)} × {devices[0].device_kind} at {places}")
            _claim(len(jax.devices()) == 8 and len(session.slices()) == 2, f"JAX sees {jax.devices()}")

    def _matmul(self, session: Session) -> None:
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        from pathways_jupyter.demo import training

        with self._step("Multiply matrices sharded over both slices") as report:
            mesh = training.mesh(session.slices())
            left = np.random.default_rng(0).standard_normal((512, 256), dtype=np.float32)
            right = np.random.default_rng(1).standard_normal((256, 384), dtype=np.float32)
            rows = jax.device_put(left, NamedSharding(mesh, PartitionSpec(("slice", "chip"))))
            product = jax.jit(jnp.matmul)(rows, right)
            off = float(np.abs(np.asarray(product) - left @ right).max())
            report.append(f"{product.shape} in {len(product.addressable_shards)} shards; off by at most {off:.1e}")
            _claim(off < 1e-3, f"the product is off by {off}")

    def _train(self, session: Session) -> Any:
        from pathways_jupyter.demo import training

        with self._step("Train a small network, data-parallel") as report:
            trainer = training.Trainer(training.mesh(session.slices()))
            losses = trainer.train(60)
            report.append(f"60 steps: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
            _claim(losses[-1] < losses[0] / 2, f"the loss went from {losses[0]} to {losses[-1]}")
        return trainer

    def _lose_a_slice(self, session: Session, trainer: Any) -> None:
        import jax.numpy as jnp

        with self._step("Lose a slice: its worker's pod is deleted") as report:
            since = session.event_count
            pod = clusters.ask(self._config, lambda client, namespace: _kill_a_worker(client, namespace, session.id))
            down = _wait_for(session, EventKind.SLICE_DOWN, since)
            report.append(f"{pod} deleted; notice: {down.message}")
            problem = trainer.failure()
            report.append(f"training on it: {problem}")
            _claim(_BROKEN in problem, f"an array on a dead slice gave: {problem}")
            lost = int(down.data["slice"])
            other = next(devices for index, devices in session.slices().items() if index != lost)
            total = float(jnp.sum(jnp.arange(10.0, device=other[0])))
            report.append(f"the other slice keeps working: sum(0..9) = {total:.0f}")
            _claim(total == 45, f"the sum is {total}")
        with self._step("Recover: a new worker heals it") as report:
            healed = _wait_for(session, EventKind.SLICE_HEALED, since)
            report.append(healed.message)
            step, losses = trainer.resume(40)
            report.append(f"from the snapshot of step {step}, 40 more: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
            _claim(losses[-1] < losses[0], f"the loss went from {losses[0]} to {losses[-1]}")

    def _disconnect(self, session: Session) -> None:
        import jax

        with self._step("Disconnect") as report:
            ended = session.disconnect()
            self._session = None
            report.append(f"JAX is back on {jax.devices()[0].platform}")
            _claim(not ended.left, ended.left)

    def _nothing_left(self, session: Session) -> None:
        from pathways_jupyter.session import registry

        with self._step("Count what is left") as report:
            counts = clusters.ask(self._config, lambda client, namespace: _objects_of(client, namespace, session.id))
            record = session.record
            files = (registry.record_path(session.id), Path(record.log))
            counts["sockets"] = sum(Path(path).exists() for path in (record.socket, record.tunnel))
            counts["session files"] = sum(path.exists() for path in files)
            counts["supervisors"] = int(_runs(self._processes[0]))
            report.append(", ".join(f"{count} {name}" for name, count in counts.items()))
            _claim(not any(counts.values()), f"left over: {report[-1]}")

    def _cluster_down(self) -> None:
        with self._step("End the embedded cluster") as report:
            _down()
            # Polling: they are no children of this process.
            deadline = time.monotonic() + _ENDING
            while (left := list(filter(_runs, self._processes))) and time.monotonic() < deadline:
                time.sleep(0.02)
            report.append(f"{len(left) or 'none'} of {text.count(len(self._processes), 'process', 'processes')} left")
            _claim(not left, f"processes left: {left}")


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _down() -> None:
    from pathways_jupyter.local import cluster

    cluster.down(name=_NAME)


def _claim(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise, hint="Please report this as a bug, with the output above.")


def _wait_for(session: Session, kind: EventKind, since: int) -> Event:
    """The first event of `kind` after number `since`."""
    found: list[Event] = []

    def look() -> None:
        for event in session.follow(since):
            if event.kind is kind:
                found.append(event)
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    _claim(bool(found), f"no {kind} within {_PATIENCE:.0f} s")
    return found[0]


async def _kill_a_worker(client: Client, namespace: str, session: str) -> str:
    from pathways_jupyter.kube import objects
    from pathways_jupyter.service import status

    (service,) = await status.fetch(client, namespace)
    held = [each for each in service.slices if each.held_by is not None and each.held_by.session == session]
    _claim(len(held) == len(service.slices), f"{len(held)} slices are held by this session")
    pod = held[-1].hosts[0].pod
    await objects.delete(client, objects.PODS, pod, namespace=namespace, grace_seconds=0)
    return pod


async def _objects_of(client: Client, namespace: str, session: str) -> dict[str, int]:
    from pathways_jupyter.kube import objects
    from pathways_jupyter.service.names import SESSION_LABEL

    kinds = {"Jobs": objects.JOBS, "pods": objects.PODS, "Leases": objects.LEASES}
    labels = f"{SESSION_LABEL}={session}"
    return {
        name: len((await objects.list_(client, kind, namespace=namespace, labels=labels)).items)
        for name, kind in kinds.items()
    }
