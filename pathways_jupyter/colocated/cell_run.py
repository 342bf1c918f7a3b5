"""Run a cell on hosts: check it, send it, wait, and assemble the results."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.colocated import array_moves, preflight, results, trees, value_reader
from pathways_jupyter.colocated.channel import Answer, channel
from pathways_jupyter.colocated.errors import CellSyntaxError, CheckError, LostError, host_text, name_hosts
from pathways_jupyter.colocated.host import Host, choose, hosts
from pathways_jupyter.colocated.loss import wait_for_hosts
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.results import Interrupted

if TYPE_CHECKING:
    import jax

Follow = Callable[[str, Sequence[Host]], Any]
"""Starts showing a call's lines as they are printed; see :mod:`pathways_jupyter.colocated.live_output`."""


def run_cell(
    source: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    slices: str | Iterable[int] | None = None,
    hosts: str | Iterable[int] | None = None,
    once: bool = False,
    on_cpu: bool = False,
    follow: Follow | None = None,
    warn: preflight.Warn = preflight.warn_caller,
    unpickle: bool | None = None,
) -> results.CallResult:
    """Run Python source on hosts, in this session's namespace there.

    Args:
      source: The cell.
      inputs: Variables for the cell. JAX arrays, including those inside dicts and other pytrees, move to the CPU
        devices of their hosts with their sharding; anything else is pickled.
      outputs: Names of variables to return. A global array keeps its sharding; arrays or numbers local to each host are
        concatenated into one array along the first axis. Anything else is returned once if it is the same on all hosts.
      slices: Run on these slices' hosts only; default: the hosts of `inputs`, or all.
      hosts: Run on these hosts only.
      once: Run on the first of the hosts only.
      on_cpu: Leave outputs on CPU devices; default: they go to the chips beside them.
      follow: Called with the call's id and hosts when the call starts; what it returns is closed at the end.
      warn: Called with a line of warning before the cell is sent.
      unpickle: Trust the hosts to run code in this process: objects of any kind come back from them. Default: the
        session's setting. Otherwise arrays, numbers, text, bytes, containers of them, values of NumPy, and
        dataclasses and named tuples that this program has defined come back, and nothing else.

    Returns:
      Every host's part; an exception on a host is in its part, and in ``result.error()``.

    Raises:
      CheckError: A check failed before anything was sent.
      ColocatedError: The hosts were lost, or outputs are inconsistent, or hold what is not read from hosts.
      Interrupted: Interrupt was pressed; the hosts were asked to stop.
      CellSyntaxError: The cell cannot be compiled; nothing was sent.
    """
    call = uuid.uuid4().hex[:6]
    filename = f"<cell {call}>"
    try:
        compile(source, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        raise CellSyntaxError(error) from None
    if unfit := [name for name in outputs if not name.isidentifier()]:
        raise CheckError(f"{unfit[0]!r} cannot be the name of an output.", hint="Name variables of the cell.")
    variables = trees.split(inputs or {})
    chosen = choose_for(variables.arrays, slices, hosts, once)
    pickled = bool(variables.values or variables.trees)
    data = preflight.pickled((variables.values, variables.trees), names=variables.pickled) if pickled else b""
    preflight.check(chosen, preflight.imported(source), data, warn)

    def warn_of_lost_names(boots: Mapping[Host, str]) -> None:
        for reason, gone in MEMORY.lost_names(boots).items():
            warn(f"[{name_hosts(gone)}] {reason}: names of earlier cells are gone.")

    # Before the cell as far as it is known by then, and after it by the answers.
    warn_of_lost_names({host: facts.boot for host, facts in zip(chosen, MEMORY.facts(chosen).values(), strict=True)})
    head = {
        "op": "cell",
        "call": call,
        "source": source,
        "filename": filename,
        "inputs": list(variables.arrays),
        "outputs": list(outputs),
        "values": pickled,
        "live": follow is not None,
        "unpickle": (trusted := trusts(unpickle)),
    }
    try:
        answers = ask(array_moves.prepare(variables.arrays, chosen), head, [data] if pickled else [], follow)
    except Interrupted as stopped:
        stopped.result = result_of(call, stopped.answers, unpickle=trusted) if stopped.answers else None
        raise
    result = result_of(call, answers, unpickle=trusted)
    warn_of_lost_names({each.host: each.boot for each in result.hosts})
    for each in result.hosts:
        MEMORY.note_names(each.host, each.boot)
    if outputs and result.error() is None:
        specs = {answer.host.index: answer.head["outputs"] for answer in answers}
        numbers = array_moves.numbers(specs)
        specs = {index: [spec for spec in each if spec["name"] not in numbers] for index, each in specs.items()}
        arrays = array_moves.fetch(call, specs, chosen, on_cpu=on_cpu)
        assigned = trees.join(arrays, answers, unpickle=trusted) | trees.once_or_per_host(numbers)
        # Nothing else: which variables of the notebook are set is not the hosts' choice.
        result = replace(result, outputs={name: assigned[name] for name in outputs if name in assigned})
    return result


def choose_for(
    arrays: Mapping[str, jax.Array],
    slices: str | Iterable[int] | None,
    indices: str | Iterable[int] | None,
    once: bool,
) -> tuple[Host, ...]:
    """Return the hosts of a call: the requested ones, else those of its arrays, else all."""
    everyone = hosts()
    array_moves.require_data(arrays, everyone)
    if slices is None and indices is None and arrays:
        return choose(array_moves.needed(arrays, everyone) or everyone, once=once)
    return choose(everyone, slices=slices, hosts=indices, once=once)


def ask(
    prepared: array_moves.Prepared, head: dict[str, Any], blobs: Sequence[bytes], follow: Follow | None = None
) -> tuple[Answer, ...]:
    """Send a call and wait for it; Interrupt stops it on the hosts.

    Raises:
      Interrupted: Interrupt was pressed.
      ColocatedError: The hosts were lost.
    """
    import jax

    to = prepared.channel
    head["session"] = MEMORY.session
    head["own"] = value_reader.own_modules()
    head["x64"] = bool(jax.config.jax_enable_x64)
    head["wrapped"] = prepared.wrapped
    head["free"] = prepared.free
    head["weak"] = prepared.weak
    head["released"] = MEMORY.take_released(to.hosts)
    following = follow(head["call"], to.hosts) if follow else None

    def stop() -> None:
        channel(to.hosts).ask({"op": "cancel", "target": head["call"]})

    try:
        return wait_for_hosts(
            to.slices,
            lambda: to.ask(head, blobs, prepared.inputs),
            stop,
            lambda answers: _interrupted(answers, to.hosts),
        )
    except LostError as error:
        # Hosts that are left may not have read the request; to release an object twice does nothing.
        for key in head["released"]:
            MEMORY.release(key, [host.index for host in to.hosts])
        array_moves.require_values(prepared.sources, error)
        raise
    finally:
        if following is not None:
            following.close()


def _interrupted(answers: tuple[Answer, ...] | None, to: Sequence[Host]) -> Interrupted:
    """Return the error of an interrupted call, which says where each host was."""
    restart = advice("{colocated_restart} ends what still runs.")
    if answers is None:
        indices = name_hosts([host.index for host in to])
        return Interrupted(f"{indices} did not answer, and may still be running the call.", hint=restart)
    outcomes: dict[str, list[int]] = {}
    runs_on = False
    for answer in answers:
        error = answer.head.get("error")
        if error is None:
            text = "had ended"
        elif error["type"] == "Stopped":
            # The call's thread caught the interrupt, or blocks where it cannot receive it.
            text, runs_on = f"did not stop yet, in {error['message']}", True
        elif error["type"] != "KeyboardInterrupt":
            text = f"had failed: {error['type']}: {error['message'].partition(chr(10))[0]}"
        else:
            text = f"stopped in line {error['line']}: {error['text']}" if error["line"] else "stopped"
        outcomes.setdefault(host_text(text), []).append(answer.host.index)
    message = "; ".join(f"{name_hosts(hosts)} {text}" for text, hosts in outcomes.items())
    return Interrupted(message, answers, hint=restart if runs_on else "")


def trusts(unpickle: bool | None) -> bool:
    """Return whether hosts may run code here: as the caller says, else as the session's settings do."""
    from pathways_jupyter.session.kernel.session import current

    session = current()
    return unpickle if unpickle is not None else session is not None and session.config.unpickle


def result_of(call: str, answers: Sequence[Answer], *, unpickle: bool) -> results.CallResult:
    """Combine the answers to a call."""
    return results.CallResult(call, tuple(results.read(answer, unpickle=unpickle) for answer in answers))
