"""One JAX user's work, timed row by row: ``python -m benchmarks.distance_workload [SETTINGS]``.

Reads the name of a row from standard input, and prints its seconds as JSON, null for one that does not apply. SETTINGS
are those of :func:`pathways_jupyter.connect` as JSON; without them JAX is what the environment makes it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import median

_MEGABYTES, _LOAD_MEGABYTES = 64, 16
"""Size of the transfers, and of the one beside the tiny operation: with 20 Mbit/s they take 27 and 7 s."""
_STEPS = 30
_LONG_SECONDS, _INTERRUPT_SECONDS = 4.0, 1.0
"""Duration of the interrupted computation, and time of the Interrupt."""
ROWS = (
    "connect, until the first result",
    "a new operation",
    "a jitted function again",
    "device_put of a new shape",
    "a step with its loss printed",
    f"{_MEGABYTES} MB up",
    f"{_MEGABYTES} MB down",
    f"a tiny operation while {_LOAD_MEGABYTES} MB go up",
    "an Interrupt of a running cell",
    "a model made eagerly, each loss printed",
    "the same made in one jit, the last loss printed",
    "disconnect",
)


def main(arguments: list[str]) -> int:
    """Answer each row that is asked for; one answer more at the beginning, when all is prepared."""
    settings = json.loads(arguments[0]) if arguments else None
    taking = _rows(settings)
    print(json.dumps(next(taking)), flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(taking)), flush=True)
    return 0


def measure() -> dict[str, float]:
    """Time all rows of this process's JAX."""
    taking = _rows({})
    next(taking)
    return {row: seconds for row, seconds in zip(ROWS, taking, strict=True) if seconds is not None}


def _rows(settings: dict[str, Any] | None) -> Iterator[float | None]:
    """Yield None when all is prepared, then the seconds of each row, in their order."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pathways_jupyter

    session: Any = None

    def connect() -> None:
        nonlocal session
        if settings is not None:
            session = pathways_jupyter.connect(tpu="tpuv6e:2x2=1", wait=60, progress=False, **settings)
        jnp.ones(8).block_until_ready()

    if settings is not None:
        # As loading the extension does.
        pathways_jupyter.prepare()
        time.sleep(3.0)
    yield None
    yield _seconds(connect)
    step = jax.jit(lambda x: x * 1.5 + 1)
    x = jnp.ones((64, 64)).block_until_ready()
    yield _seconds(lambda: step(x).block_until_ready())
    yield median([_seconds(lambda: step(x).block_until_ready()) for _ in range(5)])
    new_shapes = iter(np.ones((7, columns)) for columns in (11, 12, 13))
    yield median([_seconds(lambda: jax.device_put(next(new_shapes)).block_until_ready()) for _ in range(3)])
    mean = jax.jit(lambda x: (x * 0.5).mean())
    float(mean(x))
    yield median([_seconds(lambda: float(mean(x))) for _ in range(5)])
    content = np.arange(_MEGABYTES << 18, dtype=np.float32)
    began = time.perf_counter()
    there = jax.device_put(content).block_until_ready()
    yield time.perf_counter() - began
    fresh = jax.jit(lambda x: x + 1)(there).block_until_ready()
    yield _seconds(lambda: np.asarray(fresh))
    some = content[: _LOAD_MEGABYTES << 18]
    loading = threading.Thread(target=lambda: jax.device_put(some).block_until_ready())
    loading.start()
    meanwhile = [_seconds(lambda: step(x).block_until_ready())]
    while loading.is_alive():
        meanwhile.append(_seconds(lambda: step(x).block_until_ready()))
    loading.join()
    yield median(meanwhile)
    yield _interrupted()
    yield _seconds(_train_eagerly)
    yield _seconds(_train_jitted)
    yield None if session is None else _seconds(session.disconnect)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _interrupted() -> float:
    """Interrupt a wait for a long computation; return how long Python then takes to leave it."""
    import jax
    import jax.numpy as jnp

    turn = jax.jit(lambda times, x: jax.lax.fori_loop(0, times, lambda _, y: jnp.sin(y @ y), x))
    x, times = jnp.ones((128, 128)), 1000
    turn(1, x).block_until_ready()
    took = _seconds(lambda: turn(times, x).block_until_ready()) - _seconds(lambda: turn(1, x).block_until_ready())
    running = turn(int(times * _LONG_SECONDS / took), x)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(_INTERRUPT_SECONDS, interrupt)
    timer.start()
    try:
        running.block_until_ready()
        # The signal may be handled only when the wait is over.
        timer.join()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    finally:
        running.block_until_ready()
    raise RuntimeError("The Interrupt has not arrived.")


def _model() -> dict[str, Any]:
    """Make the parameters of two blocks of a small transformer."""
    import jax.numpy as jnp

    wide, made = 64, {}
    for block in range(2):
        for name, shape in (
            ("qkv", (wide, 3 * wide)),
            ("out", (wide, wide)),
            ("up", (wide, 256)),
            ("down", (256, wide)),
        ):
            # No random numbers: for a TPU they are lowered to code that takes XLA a minute to compile for a CPU.
            made[f"{block}.{name}"] = _wave(shape) * 0.05
            made[f"{block}.{name}.scale"] = jnp.ones(shape[0])
    return made


def _wave(shape: tuple[int, ...]) -> Any:
    import jax.numpy as jnp

    return jnp.sin(jnp.arange(math.prod(shape), dtype=jnp.float32)).reshape(shape)


def _loss(parameters: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    target = x
    for block in range(2):
        q, k, v = jnp.split(x * parameters[f"{block}.qkv.scale"] @ parameters[f"{block}.qkv"], 3, axis=-1)
        mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8) @ v
        x = x + mixed * parameters[f"{block}.out.scale"] @ parameters[f"{block}.out"]
        up = jax.nn.gelu(x * parameters[f"{block}.up.scale"] @ parameters[f"{block}.up"])
        x = x + up * parameters[f"{block}.down.scale"] @ parameters[f"{block}.down"]
    return ((x - jnp.roll(target, 1, axis=1)) ** 2).mean()


def _train(parameters: Any, state: Any, optimizer: Any, x: Any, *, every: int) -> None:
    import jax
    import optax

    @jax.jit  # type: ignore[untyped-decorator]
    def step(parameters: Any, state: Any) -> Any:
        loss, slopes = jax.value_and_grad(_loss)(parameters, x)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    for number in range(1, _STEPS + 1):
        parameters, state, loss = step(parameters, state)
        if number % every == 0:
            float(loss)


def _train_eagerly() -> None:
    import jax.numpy as jnp
    import optax

    optimizer = optax.adam(1e-3)
    parameters = _model()
    x = _wave((8, 32, 64))
    jnp.isfinite(_loss(parameters, x)).block_until_ready()
    _train(parameters, optimizer.init(parameters), optimizer, x, every=1)


def _train_jitted() -> None:
    import jax
    import optax

    optimizer = optax.adam(1e-3)

    @jax.jit  # type: ignore[untyped-decorator]
    def make() -> Any:
        parameters = _model()
        return parameters, optimizer.init(parameters), _wave((8, 32, 64))

    parameters, state, x = make()
    _train(parameters, state, optimizer, x, every=_STEPS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
