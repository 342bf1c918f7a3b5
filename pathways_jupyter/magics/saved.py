"""``%pathways suspend``, ``save`` and ``load``: this notebook's variables, in the bucket of its session."""

from __future__ import annotations

import contextlib
import threading
from importlib.util import find_spec

from pathways_jupyter.actions import saved as actions
from pathways_jupyter.actions.shell import Values
from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import about
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.magics.waiting import reported
from pathways_jupyter.render import arrays as render
from pathways_jupyter.render.progress import LOADING, SAVING, SUSPENDING
from pathways_jupyter.render.view import View, said
from pathways_jupyter.saved.arrays import WAIT
from pathways_jupyter.saved.assignment import Assignment
from pathways_jupyter.saved.saves import latest
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.verdicts import SessionCommand, verdict


def suspend(notebook: NotebookSession, values: Values) -> View:
    """Save all arrays on TPUs and free the slices, after a question if some cannot be kept."""
    current = notebook.need(SessionCommand.SUSPEND)
    with reported(notebook.screen, SUSPENDING) as report:
        report(WAIT, "")
        suspension = current.suspension()
    lost = "; ".join(suspension.unkept)
    if lost and values.get("yes"):
        notebook.screen.say(f"Not kept: {lost}.")
    elif lost and not notebook.screen.confirm(
        f"{suspension}{about(suspension.seconds)} can be kept, but not: {lost}. Suspend?"
    ):
        return said("Not suspended.")
    with reported(notebook.screen, SUSPENDING) as report:
        ended = suspension.end_runs(report)
    if ended and suspension.unkept and not values.get("yes"):
        lost = "; ".join(suspension.unkept)
        if not notebook.screen.confirm(f"The training run has ended. It cannot be kept: {lost}. Suspend?"):
            return said("Not suspended. train_loop goes on with the same snapshots=.")
    notebook.end_trace(notebook.screen.say)
    notebook.screen.say(f"Saving {suspension}{about(suspension.seconds)}.")
    with reported(notebook.screen, SUSPENDING) as report:
        current.suspend(suspension=suspension, yes=values.get("yes") or suspension.unkept, report=report)
    notebook.draw()
    slices = "the job keeps its slices" if current.record.pathways_job else "the slices are free"
    return said(f"Suspended: {suspension} saved, {slices}. %pathways resume continues.")


def save(notebook: NotebookSession, values: Values) -> View:
    """Save variables of this notebook."""
    variables, named = process.variables(), values.get("variables")
    for each in named or ():
        if each not in variables:
            raise ConfigError(f"There is no variable {each}.", hint="%pathways save NAME saves all that there are.")
    chosen = {each: variables[each] for each in named} if named else None
    current = notebook.need(SessionCommand.SAVE)
    with reported(notebook.screen, SAVING) as report:
        saved = current.save(str(values["name"]), chosen, report=report)
    return render.saved(saved)


def load(notebook: NotebookSession, values: Values) -> View:
    """Set the variables of a save; objects of these names get their leaves."""
    name, current = str(values.get("name") or ""), notebook.need(SessionCommand.LOAD)
    if bool(name) is bool(values.get("last")):
        raise ConfigError("load takes the name of a save, or --last.", hint=advice("{saved} lists them."))
    if not name:
        last = latest(current.saves.list(), process.notebook())
        if last is None:
            raise ConfigError("This notebook has no save in the bucket.", hint=advice("{saved} lists all there are."))
        name = last.name
    return render.loaded(name, assigned(notebook, name))


def assigned(notebook: NotebookSession, name: str) -> Assignment:
    """Set the variables of a save, and return what became of each."""
    current, classes = notebook.need(SessionCommand.LOAD), dict[int, str]()
    with reported(notebook.screen, LOADING) as report:
        variables = current.load(name, report=report, classes=classes)
    # Not some of the variables, nor half of an object.
    with interrupts.defer_sigint():
        assignment = Assignment(variables, classes, process.namespace(), process.reserved)
        notebook.shell.push(assignment.apply())
    return assignment


def remind(notebook: NotebookSession) -> None:
    """Say that there is a save of this notebook from an earlier kernel, if there is; returns at once."""
    current, path = process.session(), process.notebook()
    if current is None or not path or notebook.is_reminded or find_spec("gcsfs") is None:
        return
    notebook.is_reminded = True

    def look() -> None:
        # A bucket that cannot be read is reported by what needs it; the session or the kernel may end meanwhile.
        with contextlib.suppress(Exception):
            last = latest(current.saves.list(), path)
            if last is not None and last.saved < notebook.began:
                notebook.notify([render.reminder(last)])

    # On a thread, because nothing waits for it.
    threading.Thread(target=look, name="pathways-saves", daemon=True).start()


def unresumable() -> SessionError:
    """Return the error of ``resume`` without a session; it names the save of this notebook, if there is one."""
    last = None
    with contextlib.suppress(PathwaysError):
        last = actions.last()
    if last is None:
        return verdict(None, SessionCommand.RESUME).error()
    return SessionError(
        f"This notebook is not connected. {render.reminder(last)}",
        hint=advice("{connect:--help} shows how."),
    )
