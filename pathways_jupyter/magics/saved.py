"""``%pathways suspend``, ``save`` and ``load``: this notebook's variables, in the bucket of its session."""

from __future__ import annotations

from pathways_jupyter.actions.shell import Values
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import about
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.magics.waiting import reported
from pathways_jupyter.render import arrays as picture
from pathways_jupyter.render.progress import LOADING, SAVING, SUSPENDING
from pathways_jupyter.render.view import View, said
from pathways_jupyter.session.kernel import process


def suspend(connection: NotebookSession, values: Values) -> View:
    """Save all arrays on TPUs and free the slices, after a question if some cannot be kept."""
    current = connection.need()
    suspension = current.suspension()
    lost = "; ".join(suspension.unkept)
    if lost and values.get("yes"):
        connection.screen.say(f"Not kept: {lost}.")
    elif lost and not connection.screen.confirm(
        f"{suspension}{about(suspension.seconds)} can be kept, and these not: {lost}. Suspend?"
    ):
        return said("Not suspended.")
    connection.screen.say(f"Saving {suspension}{about(suspension.seconds)}.")
    with reported(connection.screen, SUSPENDING) as report:
        # What could not be kept has been agreed to.
        current.suspend(yes=True, report=report)
    connection.draw()
    slices = "the job keeps its slices" if current.record.pathways_job else "the slices are free"
    return said(f"Suspended: {suspension} saved, {slices}. %pathways resume continues.")


def save(connection: NotebookSession, values: Values) -> View:
    """Save variables of this notebook."""
    variables, named = process.variables(), values.get("variables")
    for each in named or ():
        if each not in variables:
            raise ConfigError(f"There is no variable {each}.", hint="%pathways save NAME saves all that there are.")
    chosen = {each: variables[each] for each in named} if named else None
    current = connection.need()
    with reported(connection.screen, SAVING) as report:
        saved = current.save(str(values["name"]), chosen, report=report)
    return picture.saved(saved)


def load(connection: NotebookSession, values: Values) -> View:
    """Set the variables of a save."""
    name, current = str(values["name"]), connection.need()
    with reported(connection.screen, LOADING) as report:
        found = current.load(name, report=report)
    connection.shell.push(found)
    return picture.loaded(name, list(found))
