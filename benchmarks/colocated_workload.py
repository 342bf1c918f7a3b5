"""One process's measurements for :mod:`benchmarks.colocated`: prints medians in ms as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.colocated import HOSTS, INSTANCES
from benchmarks.measure import interleave

_TIMES = 40


def main(kubeconfig: str, context: str) -> None:
    """Connect, measure, and disconnect."""
    import pathways_jupyter

    with pathways_jupyter.connect(kubeconfig=kubeconfig, context=context, tpu=INSTANCES):
        runs: dict[str, Callable[[], float]] = {}
        for count in HOSTS:
            runs[f"bare {count}"] = _timed(_bare(count))
            runs[f"cell {count}"] = _timed(_cell(count))
        interleave(runs, times=3)
        taken = interleave(runs, times=_TIMES)
    print(json.dumps(taken))


def _bare(count: int) -> Callable[[], Any]:
    import jax
    import numpy as np
    from jax.experimental import colocated_python

    from pathways_jupyter.colocated.host import hosts

    devices = [host.cpus[0] for host in hosts()[:count]]
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(devices), ("x",)), jax.sharding.PartitionSpec("x"))
    x = jax.device_put(np.zeros((count, 16), np.uint8), sharding)

    def same(x: Any) -> Any:
        return x

    bare = colocated_python.colocated_python(same).specialize(out_specs_fn=lambda x: x)
    return lambda: np.asarray(bare(x))


def _cell(count: int) -> Callable[[], Any]:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "pathways_jupyter")
    source = f"%%colocated --hosts 0-{count - 1}\n1"

    def run() -> None:
        # The display of a cell is still produced, but discarded: this process prints its measurements only.
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            shell.run_cell(source).raise_error()
        if "] 1" not in shown.getvalue():
            raise RuntimeError(f"The cell did not run: {shown.getvalue()}")

    return run


def _timed(run: Callable[[], Any]) -> Callable[[], float]:
    def timed() -> float:
        began = time.perf_counter()
        run()
        return 1000 * (time.perf_counter() - began)

    return timed


if __name__ == "__main__":
    main(*sys.argv[1:])
