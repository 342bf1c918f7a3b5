"""``%pathways move``: the notebook goes on with another kernel, beside the chips or here again, with its variables."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_jupyter.actions.shell import Values
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ClusterError, ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.kernel import fetch, kernelspec, moved
from pathways_jupyter.kernel.kernelspec import InstalledKernel
from pathways_jupyter.kernel.moved import Moved
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.magics.waiting import Waiting, reported
from pathways_jupyter.render.progress import SAVING, Titles
from pathways_jupyter.render.view import View, said
from pathways_jupyter.saved import code
from pathways_jupyter.session import clusters, protocol
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.verdicts import SessionCommand

if TYPE_CHECKING:
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.saved.code import Import
    from pathways_jupyter.saved.saves import Save

_STARTING = Titles("Starting the lab", "The lab is not started", "The lab runs")
_OF_A_PLACE = frozenset(
    ["kubeconfig", "context", "cluster", "project", "region", "local", "profile", "relay", "tunnel"]
)
"""Settings that say where the cluster is as seen from the kernel, or mean a file of its machine."""


class KernelMoves(PathwaysError):
    """Ends the cell that moves its kernel: cells that wait behind it would be lost otherwise."""


def move(notebook: NotebookSession, values: Values) -> View:
    """Go on beside the chips, or on the notebook's own machine if the kernel is there.

    Raises:
      KernelMoves: The kernel ends after this cell, and the next one runs in the other.
      PathwaysError: The notebook stays where it is; without its session if its machine could not be reached at the end.
    """
    if moved.leaves:
        raise KernelMoves(moved.REFUSED, hint=moved.ADVICE)
    current, name = notebook.need(SessionCommand.SAVE), str(values.get("name") or "")
    connection_file = process.connection_file()
    if connection_file is None:
        raise ConfigError("Only a notebook's kernel moves.", hint="A script starts anew in the cluster.")
    machine = connection_file.with_name(fetch.SOCKET)
    is_beside = machine.exists()
    if is_beside and name:
        raise ConfigError("This kernel is beside the chips.", hint="%pathways move, without a name, goes back first.")
    if not is_beside and current.config.job:
        raise ConfigError(
            f"This session has the slices of job {current.config.job}, and the account of a kernel in the cluster may "
            "not read jobs.",
            hint=advice("Disconnect, connect to slices of your own and move; {load} brings what was saved here."),
        )
    # Without a bucket nothing need begin.
    saves = current.saves
    chosen = None if is_beside else kernelspec.choose(name)
    if chosen is not None:
        # Before anything ends here: its pod may have to wait for a node.
        _start_lab(notebook, chosen)
    with reported(notebook.screen, SAVING) as report:
        save = current.save(f"moved-{secrets.token_hex(4)}", report=report)
    notebook.submodules |= code.submodules(notebook.shell.user_ns["In"])
    imports = code.imports(process.variables()) | {name: (name, "") for name in sorted(notebook.submodules)}
    lost = _lost(save, imports)
    moves = False
    try:
        if lost and values.get("yes"):
            notebook.screen.say(lost)
        moves = not lost or bool(values.get("yes")) or notebook.screen.confirm(f"{lost} Move?")
    finally:
        if not moves:
            # Also where the front end cannot ask, or the question is interrupted: it is for the other kernel only.
            saves.delete(save.name)
    if not moves:
        return said("Not moved.")
    given, defaults = (protocol.config_to_json(each) for each in (current.config, ConnectConfig()))
    settings = {key: each for key, each in given.items() if each != defaults[key] and key not in _OF_A_PLACE}
    settings |= {"gcs_bucket": clusters.bucket(current.record)}
    what = Moved(settings, save.name, imports, moved.origin() if chosen else ())
    notebook.end_trace(notebook.screen.say)
    try:
        current.disconnect(process.variables())
        notebook.draw()
        if chosen is not None:
            moved.become_at_exit(chosen.argv(str(connection_file)), what)
        else:
            _send_home(machine, what)
            moved.leave(notebook.shell)
    except KeyboardInterrupt:
        raise SessionError(
            "Moving was interrupted, after the session had begun to end. The notebook stays here.",
            hint=advice(
                "Connect with {gcs_bucket:{bucket}}; {load:{name}} brings its variables.",
                bucket=settings["gcs_bucket"],
                name=save.name,
            ),
        ) from None
    where = "on your machine" if is_beside else f"beside the chips ({chosen.cluster if chosen else ''})"
    raise KernelMoves(
        f"The next cell runs {where}, with {count(len(save.variables), 'variable')} ({size(save.nbytes)}), which are "
        f"until then in the save {save.name}.",
        hint=f"Run again the cells that wait behind this one{_again(imports)}.",
    )


def _start_lab(notebook: NotebookSession, chosen: InstalledKernel) -> None:
    from pathways_jupyter.service.lab import lifecycle

    about = chosen.settings()
    with Waiting(notebook.screen, titles=_STARTING) as waiting:

        async def start(client: Client, namespace: str) -> None:
            if not await lifecycle.is_running(client, namespace, about.lab.name):
                await lifecycle.up(
                    client, about.lab.within(namespace), progress=lambda words: waiting.enter("start the lab", words)
                )

        clusters.ask(about.where, start)
    waiting.done()


def _send_home(machine: Path, what: Moved) -> None:
    """Have this machine's end of the kernel start an ordinary one when this one has ended.

    Raises:
      ClusterError: It does not answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as notebook, notebook.makefile("rb") as lines:
            notebook.connect(str(machine))
            notebook.sendall(json.dumps({"moved": what.to_json()}).encode() + b"\n")
            if not lines.readline():
                raise ConnectionError("it has ended")
    except OSError as error:
        raise ClusterError(
            f"The notebook's machine cannot be reached: {error}.",
            hint=advice("{load:{name}} loads the variables in another kernel.", name=what.save),
        ) from error


def _lost(save: Save, imports: Mapping[str, Import]) -> str:
    """Return what stays behind, and neither an import nor a cell that runs again makes, as sentences."""
    lost = (str(each).rstrip(".") for each in save.unkept if str(each).partition(" ")[0] not in imports)
    return " ".join(f"Not kept: {each}." for each in lost)


def _again(imports: Mapping[str, Import]) -> str:
    """Return which other cells have to run again, as the end of a sentence: those that define what is code."""
    made = [name for name, value in process.variables().items() if code.is_code(value) and name not in imports]
    return f", and those that define {some(made)}" if made else ""
