"""Run a cell on hosts: check it, send it, wait, and assemble the results."""

from __future__ import annotations

import ast
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.colocated import (
    array_moves,
    host_versions,
    interruptible_wait,
    packages,
    plain,
    preflight,
    results,
    show,
    trees,
)
from pathways_jupyter.colocated.channel import Answer, channel
from pathways_jupyter.colocated.errors import CellSyntaxError, ColocatedError, LostError, name_hosts
from pathways_jupyter.colocated.host import Host, choose, hosts
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.results import Interrupted

if TYPE_CHECKING:
    import jax

LIMIT = 2 << 20
"""Bytes of text that each host returns, and four times as many of displays; the rest stays there in a file."""

Follow = Callable[[str, Sequence[Host]], Any]
"""Starts showing a call's lines as they are printed; see :mod:`pathways_jupyter.colocated.live_output`."""

Warn = Callable[[str], None]


def _warn(line: str) -> None:
    # Attribute the warning to the line that calls `run_cell`.
    warnings.warn(line, stacklevel=4)


def run_cell(
    source: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    slices: str | Iterable[int] | None = None,
    hosts: str | Iterable[int] | None = None,
    once: bool = False,
    on_cpu: bool = False,
    limit: int = LIMIT,
    display_limit: int = 0,
    follow: Follow | None = None,
    warn: Warn = _warn,
    indices: str | Iterable[int] | None = None,
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
      limit: Bytes of text that each host returns.
      display_limit: Bytes of displays that each host returns; by default four times `limit`.
      follow: Called with the call's id and hosts when the call starts; what it returns is closed at the end.
      warn: Called with a line of warning before the cell is sent.
      indices: Another name of `hosts`.
      unpickle: Trust the hosts to run code in this process: objects of any kind come back from them. Default: the
        session's setting. Otherwise arrays, numbers, text, bytes, containers of them, values of NumPy and pandas, and
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
    given = trees.split(inputs or {})
    chosen = choose_for(given.arrays, slices, indices if hosts is None else hosts, once)
    pickled = bool(given.values or given.trees)
    data = preflight.pickled((dict(given.values), dict(given.trees)), names=given.pickled) if pickled else b""
    check(chosen, preflight.imported(source), data, warn)
    for reason, gone in MEMORY.names_gone(chosen).items():
        warn(f"[{name_hosts(gone)}] {reason}: names of earlier cells are gone.")
    prepared = array_moves.prepare(given.arrays, chosen)
    head = {
        "op": "cell",
        "call": call,
        "source": source,
        "filename": filename,
        "inputs": list(given.arrays),
        "outputs": list(outputs),
        "values": pickled,
        "limit": limit,
        "display_limit": display_limit,
        "live": follow is not None,
    }
    trusted = head["unpickle"] = trusts(unpickle)
    try:
        answers = ask(prepared, head, [data] if pickled else [], follow)
    except Interrupted as stopped:
        stopped.result = result_of(call, stopped.answers, unpickle=trusted) if stopped.answers else None
        raise
    result = result_of(call, answers, unpickle=trusted)
    for each in result.hosts:
        MEMORY.note_names(each.host, each.boot)
    if outputs and result.error() is None:
        numbers = array_moves.numbers({answer.host.index: answer.head["outputs"] for answer in answers})
        taken = take(chosen, call, answers, without=numbers)
        if not on_cpu:
            taken = {name: array_moves.to_chips(name, array, chosen) for name, array in taken.items()}
        found = trees.join(taken, answers, unpickle=trusted) | trees.agree(numbers)
        # Nothing else: which variables of the notebook are set is not the hosts' choice.
        result = replace(result, outputs={name: found[name] for name in outputs if name in found})
    return result


def choose_for(
    arrays: Mapping[str, jax.Array],
    slices: str | Iterable[int] | None,
    wanted: str | Iterable[int] | None,
    once: bool,
) -> tuple[Host, ...]:
    """The hosts of a call: the requested ones, else those of its arrays, else all."""
    everyone = hosts()
    array_moves.require_data(arrays, everyone)
    if slices is None and wanted is None and arrays:
        return choose(array_moves.needed(arrays, everyone) or everyone, once=once)
    return choose(everyone, slices=slices, hosts=wanted, once=once)


def check(chosen: Sequence[Host], imported: Sequence[str], data: bytes, warn: Warn = _warn) -> None:
    """Compare versions, and check for the packages that a call needs.

    Args:
      chosen: The hosts of the call.
      imported: Modules that its source imports.
      data: The pickled part of the request.
      warn: Called with a line if versions differ but the call can run anyway; once for each host.

    Raises:
      CheckError: The call cannot run there.
    """
    known = MEMORY.facts(chosen)
    modules = preflight.modules_needed(data) if data else set()
    there = {index: facts.versions for index, facts in known.items()}
    different = host_versions.differences(host_versions.here(), there)
    unreadable = host_versions.unreadable(different, modules)
    if unreadable:
        raise host_versions.refuse(different, unreadable)
    if different:
        new = [index for index, each in there.items() if MEMORY.is_first(("versions", index, str(each)))]
        if new:
            warn(f"Versions differ: {'; '.join(map(str, different))}.")
    wanted = {*imported, *modules}
    suspects = sorted({name for facts in known.values() for name in wanted if name not in facts.packages})
    if suspects:
        answers = interruptible_wait.ask(channel(chosen), {"op": "missing", "names": suspects})
        preflight.require_packages(
            {answer.host.index: answer.head["missing"] for answer in answers},
            lambda missing: packages.advice(missing, known),
        )


def ask(
    prepared: array_moves.Prepared, head: dict[str, Any], blobs: Sequence[bytes], follow: Follow | None
) -> tuple[Answer, ...]:
    """Send a call and wait for it; Interrupt stops it on the hosts.

    Raises:
      Interrupted: Interrupt was pressed.
      ColocatedError: The hosts were lost.
    """
    way = prepared.way
    import jax

    head["session"] = MEMORY.session
    head["own"] = plain.own_modules()
    head["x64"] = bool(jax.config.jax_enable_x64)
    head["wrapped"] = prepared.wrapped
    head["free"] = prepared.free
    head["released"] = MEMORY.take_released()
    following = follow(head["call"], way.hosts) if follow else None

    def stop() -> None:
        channel(way.hosts).ask({"op": "cancel", "target": head["call"]})

    try:
        waited = interruptible_wait.wait(way.hosts, lambda: way.ask(head, blobs, prepared.inputs), stop)
    finally:
        if following is not None:
            following.close()
    if waited.interrupted:
        runs_on = waited.result is None or any(_still_runs(answer) for answer in waited.result)
        hint = "%colocated restart ends what still runs." if runs_on else ""
        raise Interrupted(_stopped(waited.result, way.hosts), waited.result, hint=hint)
    assert waited.result is not None
    return waited.result


def _stopped(answers: Sequence[Answer] | None, to: Sequence[Host]) -> str:
    indices = name_hosts([host.index for host in to])
    if answers is None:
        return f"{indices} did not answer, and may still be running the call."
    outcomes: dict[str, list[int]] = {}
    for answer in answers:
        error = answer.head.get("error")
        if error is None:
            text = "had ended"
        elif _still_runs(answer):
            text = f"did not stop yet, in {error['message']}"
        elif error["type"] != "KeyboardInterrupt":
            text = f"had failed: {error['type']}: {error['message'].partition(chr(10))[0]}"
        else:
            text = f"stopped in line {error['line']}: {error['text']}" if error["line"] else "stopped"
        outcomes.setdefault(text, []).append(answer.host.index)
    return "; ".join(f"{name_hosts(found)} {text}" for text, found in outcomes.items())


def _still_runs(answer: Answer) -> bool:
    """Whether the call's thread on a host caught the interrupt, or blocks where it cannot receive it."""
    error = answer.head.get("error")
    return error is not None and error["type"] == "Stopped"


def trusts(unpickle: bool | None) -> bool:
    """Whether hosts may run code here: as the caller says, else as the session's settings do."""
    from pathways_jupyter.session.kernel.session import current

    session = current()
    return unpickle if unpickle is not None else session is not None and session.config.unpickle


def result_of(call: str, answers: Sequence[Answer], *, unpickle: bool) -> results.CallResult:
    """Combine the answers to a call."""
    found = tuple(results.read(answer, unpickle=unpickle) for answer in answers)
    restarted = tuple(each.host.index for each in found if MEMORY.restarted(each.host, each.boot))
    return results.CallResult(call, found, restarted=restarted)


def take(
    chosen: Sequence[Host], call: str, answers: Sequence[Answer], *, what: str = "", without: Collection[str] = ()
) -> dict[str, jax.Array]:
    """Fetch the arrays that a call kept on its hosts, by name, but for those in `without`.

    Raises:
      ColocatedError: Hosts do not agree on them; `what` is their name in the message.
    """
    specs = {
        answer.host.index: [spec for spec in answer.head["outputs"] if spec["name"] not in without]
        for answer in answers
    }
    return array_moves.take(call, array_moves.agree(specs, chosen, what), chosen)


def reset(**where: Any) -> None:
    """Delete the names that cells of this session defined; `where` is ``slices`` and ``hosts``, see `choose`."""
    interruptible_wait.ask(channel(choose(hosts(), **where)), {"op": "reset", "session": MEMORY.session})


def who(**where: Any) -> dict[int, dict[str, str]]:
    """The names that cells of this session defined, each with its type, by host index."""
    answers = interruptible_wait.ask(channel(choose(hosts(), **where)), {"op": "who", "session": MEMORY.session})
    return {answer.host.index: answer.head["names"] for answer in answers}


def save(result: results.CallResult, folder: str | Path = ".") -> list[Path]:
    """Download the parts of a call's output that were too large to be returned.

    Args:
      result: The call.
      folder: The target folder; files are named after the call and the host.

    Returns:
      The files that were written.

    Raises:
      ColocatedError: A host no longer has its part.
    """
    saved = []
    for index, name in show.more(result):
        to = Path(folder) / f"colocated-{result.call}-host{index}{Path(name).suffix}"
        count = 1
        while to in saved:
            count += 1
            to = to.with_name(f"colocated-{result.call}-host{index}-{count}{Path(name).suffix}")
        download(index, name, to)
        saved.append(to)
    return saved


def download(host: int, name: str, to: Path) -> int:
    """Copy the output that a call left on a host to a local file; return its size in bytes.

    Raises:
      ColocatedError: The host no longer has it.
    """
    way = channel(choose(hosts(), hosts=[host]))
    offset = 0
    with open(to, "wb") as file:
        while True:
            try:
                (answer,) = interruptible_wait.ask(way, {"op": "read", "name": name, "offset": offset, "bytes": LIMIT})
            except LostError:
                raise
            except ColocatedError as error:
                raise ColocatedError(
                    f"Host {host} no longer has the output {name}.", hint="Run the cell again."
                ) from error
            file.write(answer.parts[0])
            offset += len(answer.parts[0])
            if offset >= answer.head["size"] or not answer.parts[0]:
                return offset
