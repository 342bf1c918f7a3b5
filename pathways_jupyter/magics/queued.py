"""The commands of ``%pathways multihost`` about queued resources: ask for TPU VMs, wait for them, delete them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathways_jupyter import entry
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.multihost import asked
from pathways_jupyter.multihost.errors import MultihostError
from pathways_jupyter.render.view import View

Values = Mapping[str, Any]


def create(screen: Screen, values: Values) -> View:
    """Ask for TPU VMs; return the queued resource."""
    from pathways_jupyter.multihost import queued_resources
    from pathways_jupyter.render import multihost

    wish = asked.wish(values, entry.whole_number("--node-count", values.get("nodes") or 1))
    queued_resources.create(*_place(values), wish)
    return multihost.queued(queued_resources.list_(*_place(values), wish.name))


def list_(screen: Screen, values: Values) -> View:
    """Return the queued resources of a zone."""
    from pathways_jupyter.multihost import queued_resources
    from pathways_jupyter.render import multihost

    return multihost.queued(queued_resources.list_(*_place(values), values.get("only") or ""))


def wait(screen: Screen, values: Values) -> View:
    """Wait until a queued resource can be used; print each change."""
    from pathways_jupyter.multihost import queued_resources
    from pathways_jupyter.render import multihost

    longest = asked.seconds("--timeout", values.get("timeout") or 3600)
    found = queued_resources.wait(
        *_place(values), values["name"], timeout=longest, changed=lambda now: screen.line(multihost.queued_line(now))
    )
    return multihost.queued([found])


def delete(screen: Screen, values: Values) -> View | None:
    """Delete a queued resource, after a question if TPU VMs would be deleted with it."""
    from pathways_jupyter.multihost import queued_resources
    from pathways_jupyter.render import multihost

    name, force, asynchronous = values["name"], bool(values.get("force")), bool(values.get("asynchronous"))
    found = queued_resources.get(*_place(values), name)
    if values.get("dry_run"):
        screen.line(queued_resources.question(found, force=force))
        return multihost.queued([found])
    if force and not values.get("yes") and not _agreed(queued_resources.question(found, force=True)):
        screen.line("Not deleted.")
        return None
    queued_resources.delete(*_place(values), name, force=force, asynchronous=asynchronous)
    screen.line(f"{name} is being deleted." if asynchronous else f"{name} is deleted.")
    return None


def _agreed(question: str) -> bool:
    from IPython.core.error import StdinNotImplementedError

    try:
        answer = input(f"{question} [y/N] ")
    except (StdinNotImplementedError, EOFError):
        raise MultihostError(f"Not deleted: {question}", hint="No answer can be given here: add --yes.") from None
    return answer.strip().lower() in {"y", "yes"}


def _place(values: Values) -> tuple[str, str]:
    return values.get("project") or "", values.get("zone") or ""
