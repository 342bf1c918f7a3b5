"""Loses slices and the proxy of a training run at random moments, and compares its losses with an undisturbed run's.

One process trains for as long as it takes, as a notebook would: when it is interrupted, it calls the loop again, and
when its session is over, it connects again. A second thread breaks something, waits until the run has passed the step
at which that happened, and breaks the next thing. So that failures hit a snapshot, a restore, a compilation and growth
too, the run itself makes those, at the beginning of each.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from machine import INSTANCE, Machine

import pathways_jupyter
from pathways_jupyter import elastic
from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.kube import objects
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel.session import Session

SLICES = 3
PATIENCE_SECONDS = 120.0
"""A failure after which the run makes no step for so long has hung it."""
TOLERANCE = 1e-4
"""Largest relative difference of a step's loss; the order in which slices are summed up changes the last digits."""
_SOON_SECONDS = 15.0
"""Longest wait of a failure for its moment."""
ROWS, FEATURES = 24, 16
_WEIGHTS = np.random.default_rng(0).normal(size=(FEATURES, 4)).astype(np.float32)


def batch(number: int) -> dict[str, np.ndarray]:
    """Batch number `number`, the same in every run."""
    x = np.random.default_rng(number).normal(size=(ROWS, FEATURES)).astype(np.float32)
    noise = np.random.default_rng((number, 1)).normal(size=(ROWS, 4)).astype(np.float32)
    return {"x": x, "y": x @ _WEIGHTS + noise}


def undisturbed(steps: int) -> Iterator[float]:
    """The losses of a run to which nothing happens, in NumPy."""
    weights = np.zeros((FEATURES, 4), np.float32)
    for number in range(steps):
        data = batch(number)
        error = data["x"] @ weights - data["y"]
        yield float((error**2).mean())
        weights = weights - 0.01 * 2 * data["x"].T @ error / error.size


class Data:
    """The batches, with a position."""

    def __init__(self) -> None:
        self.number = 0

    def __iter__(self) -> Data:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        self.number += 1
        return batch(self.number - 1)

    def get_state(self) -> int:
        return self.number

    def set_state(self, number: int) -> None:
        self.number = number


KINDS = (
    "slice",
    "two-slices",
    "all-slices",
    "flapping",
    "in-snapshot",
    "in-restore",
    "in-compilation",
    "in-growth",
    "proxy",
    "proxy-in-restore",
    "head",
    "head-and-proxy",
    "interrupt",
    "slice-interrupt",
    "proxy-interrupt",
)


class Moments:
    """Points of the run at which a failure may be wanted: the run reports each, and waits while one is made there."""

    def __init__(self) -> None:
        self._changed = interrupts.Changes()
        self._wanted = ""
        self._failure: Callable[[], None] = lambda: None

    def at(self, moment: str, failure: Callable[[], None], *, seconds: float) -> bool:
        """Let `failure` happen at the next `moment`; return whether it came within `seconds`."""
        with self._changed.lock:
            self._wanted, self._failure = moment, failure
        came = self._changed.wait_for(lambda: not self._wanted, timeout=seconds)
        with self._changed.lock:
            self._wanted = ""
        return came

    def report(self, moment: str) -> None:
        """Called by the run at the beginning of `moment`."""
        with self._changed.lock:
            if self._wanted != moment:
                return
            self._wanted = ""
            self._changed.notify_all()
            failure = self._failure
        # On the run's own thread: it goes on when the worker is dead, and does not know that yet.
        failure()


class Watched(Record):
    """A record that reports what the run's main thread begins to do."""

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self._moments = moments

    def begin(self, **kwargs: Any) -> None:
        super().begin(**kwargs)
        during = self.goodput.during

        def reported(what: Spent) -> Any:
            self._moments.report(what)
            return during(what)

        self.goodput.during = reported  # type: ignore[method-assign]


class Training:
    """The run, on the main thread; the last thread that calls it ends with :meth:`stop`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.moments = Moments()
        self.record = Watched(self.moments)
        self.session: Session | None = None
        self.stopped = False
        self.over = threading.Event()
        self.calls = 0

    def run(self) -> None:
        """Train until :meth:`stop`; after an Interrupt and after the session's end too."""
        snapshots = elastic.Snapshots(outside_every=3)
        while not self.stopped:
            # An Interrupt may come at any moment, also before the loop has begun.
            with contextlib.suppress(KeyboardInterrupt):
                if (session := pathways_jupyter.current_session()) is None:
                    session = pathways_jupyter.connect(
                        kubeconfig=str(self._machine.cluster.kubeconfig),
                        tpu={INSTANCE: SLICES},
                        wait=60,
                        progress=False,
                    )
                self.session = session
                self.calls += 1
                elastic.train_loop(
                    self._step,
                    {"w": np.zeros((FEATURES, 4), np.float32), "n": np.int32(0)},
                    _Ending(self),
                    steps=1_000_000,
                    snapshots=snapshots,
                    manager=elastic.Manager(settle_seconds=0.1),
                    precompile=self.calls % 2 == 0,
                    record=self.record,
                )
        self.over.set()
        if self.session is not None:
            self.session.disconnect()

    def _step(self, state: Any, batch: Any) -> Any:
        import jax

        def loss(weights: Any) -> Any:
            return ((batch["x"] @ weights - batch["y"]) ** 2).mean()

        value, slope = jax.value_and_grad(loss)(state["w"])
        return {"w": state["w"] - 0.01 * slope, "n": state["n"] + 1}, {"loss": value, "n": state["n"]}


class _Ending(Data):
    """Data that end when the training is to stop."""

    def __init__(self, training: Training) -> None:
        super().__init__()
        self._training = training

    def __next__(self) -> dict[str, np.ndarray]:
        if self._training.stopped:
            raise StopIteration
        return super().__next__()


class Breaking:
    """Failures of the run, on a thread of their own."""

    def __init__(self, training: Training, chance: random.Random) -> None:
        self._training = training
        self._chance = chance
        self._missed = 0
        proxy = lambda: self._delete(self._session.record.pod)  # noqa: E731
        failures: tuple[Callable[[], object], ...] = (
            lambda: self._kill(1),
            lambda: self._kill(2),
            lambda: self._kill(SLICES),
            self._flap,
            lambda: self._at(Spent.CHECKPOINT_SAVE),
            lambda: self._twice(Spent.CHECKPOINT_RESTORE),
            # A call of the loop compiles anew.
            lambda: self._at(Spent.PROGRAM_STARTUP, first=self._interrupt),
            lambda: self._twice(Spent.SCALE_UP),
            proxy,
            lambda: self._twice(Spent.CHECKPOINT_RESTORE, proxy=True),
            lambda: self._delete("pathways-head"),
            lambda: self._delete("pathways-head", self._session.record.pod),
            self._interrupt,
            lambda: (self._kill(1), self._interrupt()),
            lambda: (proxy(), self._interrupt()),
        )
        self.kinds = dict(zip(KINDS, failures, strict=True))

    @property
    def missed(self) -> int:
        """Return how many of the failures at a moment were left out, because the run did not come to it."""
        return self._missed

    @property
    def _session(self) -> Session:
        session = self._training.session
        assert session is not None
        return session

    def _numbers(self, count: int) -> list[int]:
        return self._chance.sample(range(SLICES), count)

    def _kill(self, count: int) -> None:
        self._delete(*(f"-worker-{number}-" for number in self._numbers(count)))

    def _flap(self) -> None:
        (number,) = self._numbers(1)
        for _ in range(3):
            self._delete(f"-worker-{number}-")
            time.sleep(self._chance.uniform(0.2, 1.0))

    def _at(self, moment: str, *, first: Callable[[], None] | None = None) -> None:
        """Lose a slice at the next `moment`, which `first` brings about."""
        part = f"-worker-{self._numbers(1)[0]}-"
        cause = threading.Timer(0.01, first or (lambda: None))
        cause.start()
        self._missed += not self._training.moments.at(moment, lambda: self._delete(part), seconds=_SOON_SECONDS)
        cause.join()

    def _twice(self, moment: str, *, proxy: bool = False) -> None:
        """Lose a slice, and another (or the proxy) at a moment that follows from it."""
        one, other = self._numbers(2)
        second = [self._session.record.pod] if proxy else [f"-worker-{other}-"]
        first = threading.Timer(0.01, lambda: self._delete(f"-worker-{one}-"))
        first.start()
        self._missed += not self._training.moments.at(moment, lambda: self._delete(*second), seconds=_SOON_SECONDS)
        first.join()

    def _interrupt(self) -> None:
        time.sleep(self._chance.uniform(0, 0.3))
        _interrupt()

    def _delete(self, *parts: str) -> None:
        """Delete the pods whose names have one of `parts`, without grace."""

        async def delete(client: Any, namespace: str) -> None:
            for pod in (await objects.list_(client, objects.PODS, namespace=namespace)).items:
                name = pod["metadata"]["name"]
                if any(part in name for part in parts):
                    with contextlib.suppress(PathwaysError):
                        await objects.delete(client, objects.PODS, name, namespace=namespace, grace_seconds=0)

        # While the head is starting the API may refuse; what was not broken is then not broken.
        with contextlib.suppress(PathwaysError):
            clusters.ask(self._session.record, delete)


def run(machine: Machine, *, rounds: int, chance: random.Random, only: list[str]) -> bool:
    """Break the run `rounds` times; print a table. Whether all were recovered, with the losses that were expected."""
    import jax  # noqa: F401 - not in the middle of an Interrupt

    training = Training(machine)
    breaking = Breaking(training, chance)
    kinds = [each for each in KINDS if each in only]
    took: dict[str, list[float]] = collections.defaultdict(list)
    failed: list[str] = []

    def break_all() -> None:
        try:
            _wait_for_steps(training, 20)
            for number in range(rounds):
                kind = kinds[number % len(kinds)] if number < len(kinds) else chance.choice(kinds)
                time.sleep(chance.uniform(0, 0.5))
                began, step = time.monotonic(), _latest(training)
                breaking.kinds[kind]()
                # More than is ever repeated, so that the run has gone on from where it was.
                if not _wait_for_steps(training, step + 25):
                    failed.append(f"round {number}, {kind}: no progress in {PATIENCE_SECONDS:.0f} s")
                    faulthandler.dump_traceback(all_threads=True)
                    _end(training, machine)
                    return
                took[kind].append(time.monotonic() - began)
                print(f"{number + 1:4d} {kind}: {took[kind][-1]:.1f} s", flush=True)
        except BaseException as error:
            failed.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            training.stopped = True

    thread = threading.Thread(target=break_all, name="soak-breaking")
    thread.start()
    try:
        training.run()
    except BaseException as error:
        failed.append(f"the run ended with {type(error).__name__}: {error}")
        raise
    finally:
        training.stopped = True
        thread.join(PATIENCE_SECONDS)
        sound = _report(training, took, failed, rounds, breaking.missed)
    return sound


def _report(training: Training, took: dict[str, list[float]], failed: list[str], rounds: int, missed: int) -> bool:
    print("| failure | times | median s | longest s |\n| --- | ---: | ---: | ---: |")
    for kind, seconds in took.items():
        print(f"| {kind} | {len(seconds)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |")
    metrics = training.record.metrics
    worst, wrong = 0.0, 0
    for number, expected in enumerate(undisturbed(len(metrics))):
        each = metrics.get(number)
        if each is None or each["n"] != number:
            wrong += 1
            continue
        worst = max(worst, abs(each["loss"] - expected) / max(abs(expected), 1e-6))
    recovered = sum(map(len, took.values()))
    print(
        f"{recovered} of {rounds} failures recovered in {training.calls} calls of train_loop; {len(metrics)} steps, "
        f"{wrong} missing or applied twice; largest relative difference of a loss {worst:.1e} (tolerance {TOLERANCE:g})"
    )
    print(f"{missed} failures found no moment of their kind.", *failed, sep="\n")
    return recovered == rounds and not failed and not wrong and worst <= TOLERANCE


def _latest(training: Training) -> int:
    latest = training.record.latest
    return latest.step if latest is not None else 0


def _interrupt() -> None:
    # On the main thread, as a kernel's Interrupt: a call that waits there has to return.
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def _end(training: Training, machine: Machine) -> None:
    """End a run that hangs, or else this process."""
    training.stopped = True
    _interrupt()
    if not training.over.wait(30):
        machine.__exit__(None, None, None)
        os._exit(1)


def _wait_for_steps(training: Training, step: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if _latest(training) >= step:
            return True
        time.sleep(0.01)
    return False
