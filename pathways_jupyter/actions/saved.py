"""``saved``: the user's saves in a bucket, listed and deleted without a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ConfigError, LocalClusterError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.render import arrays as render
from pathways_jupyter.render.view import View, said
from pathways_jupyter.saved.saves import Save, Saves, latest
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session import sweep as sweep_sessions
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.storage import adopted, require_adopted


def listing(shell: Shell, values: Values) -> View:
    """Return the user's saves."""
    with _saves(values) as saves:
        listed = saves.list()
    return render.listed(listed, latest(listed, process.notebook()))


def last() -> Save | None:
    """Return the last save of this notebook, in the bucket that its settings name; None if there is none.

    Raises:
      PathwaysError: No bucket is known, or it failed.
    """
    notebook = process.notebook()
    if not notebook:
        return None
    with _saves({}) as saves:
        return latest(saves.list(), notebook)


def delete(shell: Shell, values: Values) -> View:
    """Delete a save."""
    name = str(values["name"])
    with _saves(values) as saves:
        saves.require(name)
        question = f"Delete {name} with its arrays?"
        for each in registry.sessions():
            if each.saved is None or each.saved.place != saves.address(name):
                continue
            said_of_it = f"{each.owner} is suspended, and its arrays are nowhere else."
            if sweep_sessions.may_live(each):
                hint = f"pathways-jupyter sessions disconnect {each.id} ends its session; then it can be deleted."
                raise ConfigError(said_of_it, hint=hint)
            # Its supervisor has died, and its kernel may still resume it.
            question = f"{said_of_it} {question}"
        if not values.get("yes") and not shell.confirm(question):
            return said("Not deleted.")
        saves.delete(name)
    return said(f"{name} is deleted.", {"name": name})


def sweep(values: Values, *, dry_run: bool) -> tuple[str, ...]:
    """Remove what saves of this user have left that were cut short, where a bucket is known; return the places of it.

    Raises:
      PathwaysError: The bucket failed.
    """
    with contextlib.ExitStack() as stack:
        try:
            saves = stack.enter_context(_saves(values, others=False))
        except (ConfigError, LocalClusterError):
            return ()
        return saves.sweep(dry_run=dry_run)


@contextlib.contextmanager
def _saves(values: Values, *, others: bool = True) -> Iterator[Saves]:
    """Context manager over the saves in the bucket that is named, that of the session, or the embedded cluster's.

    Args:
      others: Whether the only session on this machine counts, and without one the embedded cluster that runs.

    Raises:
      ConfigError: There is none, its address is invalid, or a package is missing.
      LocalClusterError: It was that of an embedded cluster that has ended.
      SessionError: It is that of one to which nothing leads from here.
    """
    named = SETTINGS["gcs_bucket"].check(values.get("gcs_bucket", ""), "gcs_bucket")
    # A session's own record, as in a pod of the embedded cluster its config with a context is not that of the pod.
    where = cluster.own_session(values) or cluster.where(values, others=others)
    bucket = named or clusters.bucket(where)
    if not bucket and others and (of_machine := clusters.storage_of_machine()) is not None:
        bucket = of_machine.bucket
    if not bucket:
        raise ConfigError(
            "There is no bucket to look in.",
            hint=advice("Name one with {gcs_bucket:gs://...}, or the embedded cluster with {local}."),
        )
    # A session's bucket is looked for where the session itself saves.
    is_its_own = bucket == clusters.bucket(where)
    if is_its_own:
        clusters.require_running(where)
    storage = clusters.Storage.of(where) if is_its_own else clusters.storage_of(bucket)
    with adopted(storage):
        require_adopted(bucket)
        yield Saves(bucket, current_user())


ACTIONS: Mapping[str, Action] = {"saved": listing, "saved delete": delete}
