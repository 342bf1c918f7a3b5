"""A training loop while the API server is restarted, beside pathwaysutils' session after the same restart."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil

from benchmarks import peer
from benchmarks.connect import renamed
from benchmarks.measure import Row, Table, in_process, median

_AWAY_SECONDS = 5.0
_ROUNDS = 5
_PATIENCE_SECONDS = 60.0
_FIRST_STEPS = 50
"""Before the first interruption."""
_ATTEMPTS = 5
_SETTLE_SECONDS = 1.0
_OURS, _PEER = "ours, with a relay", "isc_pathways.connect"


def run(kubeconfig: str, context: str) -> list[Table]:
    """Restart the API server of the embedded cluster several times under our loop, and once under the peer's."""
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        environ = {
            **os.environ,
            "KUBECONFIG": str(renamed(kubeconfig, Path(directory) / "kubeconfig")),
            "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        }
        ours = in_process("benchmarks.interruption", "ours", kubeconfig, context)
        theirs = in_process("benchmarks.interruption", "peer", environ=environ)
    if "taken" not in ours:
        raise RuntimeError(f"Our session: {ours['outcome']}")
    taken = ours["taken"]
    return [
        Table(
            "The API server restarted under a training loop",
            "s",
            [
                Row("from its return to the next step, median", {_OURS: median(taken), _PEER: None}),
                Row("the longest of them", {_OURS: max(taken), _PEER: None}),
            ],
            goal="no array lost; the next step after 1 s (median)",
            verdict=f"{_OURS}: {ours['steps']} steps, none lost or repeated; {_PEER}: {theirs['outcome']}",
            notes=[
                f"Away for {_AWAY_SECONDS:.0f} s, {len(taken)} times; the peer's session does not outlive the first."
            ],
        )
    ]


def main(arguments: list[str]) -> int:
    """One loop; prints one line of JSON."""
    kind, *where = arguments
    print(json.dumps(_ours(*where) if kind == "ours" else _theirs()))
    return 0


def _ours(kubeconfig: str, context: str) -> dict[str, object]:
    import pathways_jupyter

    with pathways_jupyter.connect(
        kubeconfig=kubeconfig, context=context, tpu={"tpuv6e:2x2": 1}, service=peer.SERVICE, wait=60, relay=True
    ):
        loop, taken = _Loop(), list[float]()

        def interrupt() -> None:
            for _ in range(_ROUNDS):
                back = _restart()
                taken.append(loop.next_step(since=back) - back)

        return {"steps": loop.run(interrupt), "taken": taken}


def _theirs() -> NoReturn:
    """Connect as :mod:`benchmarks.peer` does."""
    from pathwaysutils.experimental.shared_pathways_service import isc_pathways

    for _ in range(_ATTEMPTS):
        with isc_pathways.connect(
            cluster=peer.CLUSTER,
            project=peer.PROJECT,
            region=peer.REGION,
            gcs_bucket="gs://bench",
            pathways_service=peer.SERVICE,
            expected_tpu_instances={"tpuv6e:2x2": 1},
            proxy_options=["use_insecure_credentials:true"],
        ):
            # Its pod counts as ready before the proxy listens. If the first connection is refused, kubectl ends, and
            # JAX waits for ever.
            time.sleep(_SETTLE_SECONDS)
            if not _is_forwarding():
                continue
            loop = _Loop()

            def interrupt(loop: _Loop = loop) -> None:
                back = _restart()
                # Here, because its loop may not come back from the call in which it waits; nor may its clean-up, which
                # waits for a proxy that does not answer any more.
                _finish(f"continued after {loop.next_step(since=back) - back:.2f} s")

            try:
                loop.run(interrupt)
            except Exception as error:  # Whatever the client raises is the result.
                _finish(f"lost after {loop.steps} steps ({str(error).splitlines()[0][:120]})")
    _finish(f"no connection in {_ATTEMPTS} attempts: each time kubectl had ended before the proxy listened")


def _is_forwarding() -> bool:
    """Return whether a kubectl of this process forwards a port."""
    return any(
        "port-forward" in each.cmdline()
        for each in psutil.Process().children()
        if each.status() != psutil.STATUS_ZOMBIE
    )


def _finish(outcome: str) -> NoReturn:
    """Print the result, and end this process without any clean-up."""
    print(json.dumps({"outcome": outcome}), flush=True)
    os._exit(0)


class _Loop:
    """Steps on an array on the devices: each one adds one to it, and checks the sum."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._steps: list[float] = []

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self._steps)

    def next_step(self, *, since: float) -> float:
        """Wait for a step that ends after `since`; return when it did.

        Raises:
          TimeoutError: There was none.
        """
        deadline = since + _PATIENCE_SECONDS
        while not (later := [at for at in self._steps[-50:] if at > since]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no step for {_PATIENCE_SECONDS:.0f} s")
            time.sleep(0.005)
        return later[0]

    def run(self, interrupt: Callable[[], None]) -> int:
        """Make steps in this thread, and call `interrupt` in another one; return the number of steps when it is over.

        The steps are in the main thread, as a notebook's cell is.
        """
        import jax

        interrupting = threading.Thread(target=self._interrupt, args=(interrupt,), daemon=True)
        step: Callable[[jax.Array], jax.Array] = jax.jit(lambda value: value + 1)
        value = jax.numpy.zeros((), "int32")
        while not self._stop.is_set():
            value = step(value)
            if int(value) != len(self._steps) + 1:
                raise RuntimeError(f"step {len(self._steps) + 1} came back as {int(value)}")
            self._steps.append(time.monotonic())
            if len(self._steps) == _FIRST_STEPS:
                interrupting.start()
            time.sleep(0.02)
        interrupting.join()
        return len(self._steps)

    def _interrupt(self, interrupt: Callable[[], None]) -> None:
        try:
            interrupt()
        except TimeoutError as error:
            # The loop waits in a call that does not return.
            _finish(f"lost after {self.steps} steps ({error})")
        finally:
            self._stop.set()


def _restart() -> float:
    """Restart the API server of the bench's cluster; return when it was back."""
    from pathways_jupyter.local import cluster

    running = cluster.find("bench")
    if running is None:
        raise RuntimeError("The bench's cluster has ended.")
    running.restart_api(away=_AWAY_SECONDS)
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
