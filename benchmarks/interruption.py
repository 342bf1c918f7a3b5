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

from benchmarks import peer
from benchmarks.connect import renamed
from benchmarks.measure import Row, Table, in_process, median

_AWAY_SECONDS = 5.0
_ROUNDS = 5
_PATIENCE_SECONDS = 60.0
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
        loop = _Loop()
        taken = []
        for _ in range(_ROUNDS):
            back = _restart()
            taken.append(loop.next_step(since=back) - back)
        return {"taken": taken, "steps": loop.finish()}


def _theirs() -> dict[str, object]:
    """Connect as :mod:`benchmarks.peer` does."""
    from pathwaysutils.experimental.shared_pathways_service import isc_pathways

    with isc_pathways.connect(
        cluster=peer.CLUSTER,
        project=peer.PROJECT,
        region=peer.REGION,
        gcs_bucket="gs://bench",
        pathways_service=peer.SERVICE,
        expected_tpu_instances={"tpuv6e:2x2": 1},
        proxy_options=["use_insecure_credentials:true"],
    ):
        loop = _Loop()
        back = _restart()
        try:
            outcome = f"continued after {loop.next_step(since=back) - back:.2f} s"
        except (RuntimeError, TimeoutError) as error:
            outcome = f"lost ({str(error).splitlines()[0][:120]})"
        # Its clean-up waits for a proxy that does not answer any more.
        print(json.dumps({"outcome": outcome}), flush=True)
        os._exit(0)


class _Loop:
    """Steps on an array on the devices, in a thread: each one adds one to it, and checks the sum."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._steps: list[float] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.next_step(since=time.monotonic())

    def next_step(self, *, since: float) -> float:
        """Wait for a step that ends after `since`; return when it did."""
        deadline = since + _PATIENCE_SECONDS
        while not (later := [at for at in self._steps[-50:] if at > since]):
            if self._error is not None:
                raise RuntimeError(str(self._error))
            if time.monotonic() > deadline:
                raise TimeoutError(f"no step for {_PATIENCE_SECONDS:.0f} s")
            time.sleep(0.005)
        return later[0]

    def finish(self) -> int:
        """Stop; return the number of steps."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise RuntimeError(str(self._error))
        return len(self._steps)

    def _run(self) -> None:
        import jax

        try:
            step: Callable[[jax.Array], jax.Array] = jax.jit(lambda value: value + 1)
            value = jax.numpy.zeros((), "int32")
            while not self._stop.is_set():
                value = step(value)
                if int(value) != len(self._steps) + 1:
                    raise RuntimeError(f"step {len(self._steps) + 1} came back as {int(value)}")
                self._steps.append(time.monotonic())
                time.sleep(0.02)
        except Exception as error:  # Whatever the client raises is the result.
            self._error = error


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
