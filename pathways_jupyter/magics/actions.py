"""The commands of ``%pathways``: each calls the layer below and returns what to show.

Imported by the first command that needs it, so that loading the extension stays cheap.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter import blocking, entry, log_command
from pathways_jupyter import config as settings
from pathways_jupyter.commands.declaration import CLUSTER, SERVICE
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, SessionError
from pathways_jupyter.events import SessionState
from pathways_jupyter.magics import jobs, services
from pathways_jupyter.magics.notebook_session import Connection
from pathways_jupyter.magics.waiting import Waiting
from pathways_jupyter.render import array_notes, connection_settings
from pathways_jupyter.render import sessions as sessions_picture
from pathways_jupyter.render.view import View
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.kernel import session
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.widgets.live import Place

Values = Mapping[str, Any]

_PLACE = {option.name for option in CLUSTER}
_ELSEWHERE = _PLACE | {SERVICE.name}


def connect(connection: Connection, values: Values, place: Place | None = None) -> View | None:
    """Start a session and point JAX at it; its card is drawn in `place`, by default below the cell.

    Where this notebook has such a session already, because the cell is run again, show that one.
    """
    asked = entry.resolve(values)
    current = connection.session
    if current is not None:
        there = current.config
        if asked.local and there.local:
            # As entry.located() has filled it in.
            instances = asked.instances or there.instances
            asked = dataclasses.replace(asked, instances=instances, kubeconfig=there.kubeconfig, context=there.context)
        if current.has_devices and asked == there:
            return status(connection, values)
        raise SessionError(
            f"This notebook is connected already (session {current.id}).",
            hint="%pathways disconnect ends it; %pathways reconnect gets a new proxy.",
        )
    try:
        with Waiting(connection.screen, place) as waiting:
            if asked.local:
                waiting.enter(entry.embedded_stage(asked))
            config = entry.located(asked)
            attempt = waiting.through(session.start(config, connection.variables, revive=entry.revive))
    except KeyboardInterrupt:
        raise _interrupted(connection) from None
    _show(connection, attempt, waiting.place)
    return None


def job_connect(connection: Connection, values: Values) -> View | None:
    """Attach this notebook to the proxy of a headless job."""
    return connect(connection, {("job" if name == "name" else name): value for name, value in values.items()})


def reconnect(connection: Connection, values: Values, place: Place | None = None) -> None:
    """Replace the proxy of this notebook's session; arguments as for :func:`connect`."""
    current = connection.need()
    try:
        with Waiting(connection.screen, place) as waiting:
            if current.config.local and current.state is SessionState.LOST:
                waiting.enter(entry.embedded_stage(current.config))
            attempt = waiting.through(session.restart(current, connection.variables))
    except KeyboardInterrupt:
        connection.draw()
        # Where all was done, only the rest of the cell is lost.
        raise KeyboardInterrupt() if current.has_devices else current.interrupted() from None
    _show(connection, attempt, waiting.place)


def disconnect(connection: Connection, values: Values) -> View:
    """End this notebook's session."""
    current = connection.need()
    slice_maps = sys.modules.get("pathways_jupyter.widgets.slices")
    if slice_maps is not None:
        slice_maps.end_all()
    try:
        ended = current.disconnect(connection.variables)
    except KeyboardInterrupt:
        raise SessionError(
            f"Interrupted. JAX is as it was before; the proxy of session {current.id} is still being removed.",
            hint="%pathways sessions lists it until it is gone.",
        ) from None
    connection.draw()
    return array_notes.disconnected(current.id, ended.unusable, ended.left)


def status(connection: Connection, values: Values) -> View:
    """This notebook's session."""
    current = connection.session
    if current is None:
        return sessions_picture.no_session()
    connection.settle()
    try:
        record = current.status()
    except SessionError:
        record = dataclasses.replace(current.record, supervisor=registry.SILENT)
    return connection.card(record)


def slices(connection: Connection, values: Values) -> Any:
    """The service's slices and their holders; live when it is this session's own service."""
    from pathways_jupyter.render import slices as picture
    from pathways_jupyter.service import status as reading

    where, mine = _where(connection, values)
    current = connection.session
    if mine and not where.service and current is not None and (job := current.record.pathways_job):
        # Its slices are no service's, which the live map would watch.
        own = entry.ask(where, lambda client, namespace: reading.fetch_job(client, namespace, job))
        return picture.view((own,), viewer=picture.Viewer(user=current_user()))
    found = entry.ask(where, lambda client, namespace: reading.fetch(client, namespace, where.service))
    if current is not None and mine and connection.screen.in_place:
        from pathways_jupyter.widgets.slices import SliceMap

        return SliceMap(connection.shell, current, found)
    return picture.view(found, viewer=picture.Viewer(mine, current_user()))


def panel(connection: Connection, values: Values) -> Any:
    """Buttons that do what connect, reconnect and disconnect do, below the session's card."""
    if not connection.screen.in_place:
        raise ConfigError("A panel needs a notebook.", hint="In a terminal: %pathways connect --help.")
    from pathways_jupyter.widgets.panel import Panel

    place = connection.screen.place()

    def act(command: str, given: Values) -> View | None:
        if command == "disconnect":
            connection.move(place)
            return disconnect(connection, given)
        (connect if command == "connect" else reconnect)(connection, given, place)
        return None

    return Panel(place, lambda: status(connection, {}), act, lambda: connection.session is not None)


def logs(connection: Connection, values: Values) -> None:
    """Print a log."""
    log = log_command.read(
        values, session=lambda: _record(connection, values), cluster=lambda: _service(connection, values)[0]
    )
    try:
        for line in log.lines:
            connection.screen.line(line)
    except KeyboardInterrupt:
        connection.screen.line("(no longer following)")


def events(connection: Connection, values: Values) -> Any:
    """The past and future events of this notebook's session."""
    session = connection.need()
    if not connection.screen.in_place:
        from pathways_jupyter.render import events as picture

        return picture.view(session.events())
    from pathways_jupyter.widgets.events import Timeline

    return Timeline(connection.shell, session)


def sessions(connection: Connection, values: Values) -> View:
    """All sessions on this machine."""
    current = connection.session
    present = blocking.run(client.present(registry.sessions()))
    return sessions_picture.table(present, mine=current.id if current else "")


def env(connection: Connection, values: Values) -> View:
    """The variables by which other processes share this session."""

    current, share = connection.need(), bool(values.get("set"))
    return connection_settings.environment(current.environment(share=share), shared=share, embedded=current.is_embedded)


def doctor(connection: Connection, values: Values) -> View:
    """Check everything that a connection needs."""
    from pathways_jupyter.render import doctor as picture

    asked = dict(values)
    further = {name: bool(asked.pop(name, False)) for name in ("lab", "platform", "faults")}
    where, _ = _where(connection, asked)
    return picture.view(entry.examine(where, **further))


def elastic(connection: Connection, values: Values) -> Any:
    """The elastic training run of this process, or a fault that is injected into it."""
    from pathways_jupyter.magics import elastic as actions

    return actions.run(connection, values)


def profiles(connection: Connection, values: Values) -> View:
    """Named settings."""
    return connection_settings.profiles(settings.profiles(), settings.profiles_path())


def _interrupted(connection: Connection) -> BaseException:
    """Return what to raise for an Interrupt while connecting."""
    if connection.session is not None:
        # It came when all was done: the session is fine, only the rest of the cell is lost.
        return KeyboardInterrupt()
    return SessionError("Connecting was interrupted; everything that it had created was removed.")


def _show(connection: Connection, attempt: ConnectionAttempt[Session], place: Place | None) -> None:
    """Show the session that `attempt` has connected, and what happened to the user's arrays."""
    connection.watch(attempt.session, place)
    if place is None:
        connection.screen.line(connection.card().text)
    else:
        connection.draw()
    lines = array_notes.switched(attempt.switched.unusable, attempt.switched.left)
    if lines:
        connection.notify(lines)


def _where(connection: Connection, values: Values) -> tuple[ConnectConfig, str]:
    """The cluster and service to use, and the id of this notebook's session if it uses the same ones.

    Options come first, then this notebook's session, then the only session on this machine.
    """
    current = connection.session
    named = {name: value for name, value in settings.canonical(values).items() if name in _ELSEWHERE}
    if current is None or set(named) - {SERVICE.name}:
        return entry.where(named), ""
    record = current.record
    service = named.get("service") or record.service
    return dataclasses.replace(current.config, namespace=record.namespace, service=service), str(current.id)


def _service(connection: Connection, values: Values) -> tuple[ConnectConfig, str]:
    """:func:`_where` for a command about a service.

    Raises:
      SessionError: The notebook is attached to a job, and nothing else is named.
    """
    where, mine = _where(connection, values)
    current = connection.session
    if mine and not where.service and current is not None and (job := current.record.pathways_job):
        raise SessionError(
            f"This notebook is attached to job {job}, which is no service: its slices are its own.",
            hint=f"%pathways job show {job} shows them, and %pathways job logs {job} rm prints the log of its "
            "resource manager. --service NAME names a service.",
        )
    return where, mine


def _record(connection: Connection, values: Values) -> SessionRecord:
    """The session named in `values`, by default this notebook's."""
    wanted = values.get("session", "")
    current = connection.session
    return current.record if current is not None and not wanted else entry.find_session(wanted)


ACTIONS: Mapping[str, Callable[[Connection, Values], Any]] = {
    "connect": connect,
    "job connect": job_connect,
    "disconnect": disconnect,
    "reconnect": reconnect,
    "status": status,
    "slices": slices,
    "panel": panel,
    "logs": logs,
    "events": events,
    "sessions": sessions,
    "env": env,
    **services.ACTIONS,
    "doctor": doctor,
    "elastic": elastic,
    "profiles": profiles,
    **jobs.ACTIONS,
}
