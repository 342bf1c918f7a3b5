"""The commands of ``%pathways``: those that act on this notebook are here, and the others are everybody's actions.

Imported by the first command that needs it, so that loading the extension stays cheap.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.actions import action_of, cluster, of_its_cluster, profile
from pathways_jupyter.actions.shell import Values
from pathways_jupyter.base import interrupts, slow_answers
from pathways_jupyter.base.config import ConnectConfig, for_next_proxy
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.text import count, size
from pathways_jupyter.magics import elastic, files, move, saved
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.magics.waiting import Waiting
from pathways_jupyter.render import arrays
from pathways_jupyter.render import sessions as sessions_view
from pathways_jupyter.render.progress import CONNECTING, RESUMING
from pathways_jupyter.render.view import View, for_programs, said
from pathways_jupyter.session import registry
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt, give_up
from pathways_jupyter.session.kernel.session import Session
from pathways_jupyter.session.verdicts import Does, SessionCommand, SessionVerdict, verdict
from pathways_jupyter.widgets.live import CellOutput


def run(notebook: NotebookSession, command: str, values: Values) -> Any:
    """Run a command of ``%pathways``, and return what to show."""
    with of_its_cluster(values):
        if command in _COMMANDS:
            return _COMMANDS[command](notebook, values)
        with slow_answers.said_by(notebook.screen.say):
            result = action_of(command)(notebook.screen, values)
    if result is not None and values.get("json"):
        return for_programs(result.value)
    return result if result is None or not notebook.screen.in_place else _live(notebook, command, values, result)


def _live(notebook: NotebookSession, command: str, values: Values, view: View) -> Any:
    """Return the view that goes on to follow what `view` shows, where there is one."""
    if command == "job show":
        from pathways_jupyter.widgets.live_views import JobPanel

        return JobPanel(notebook.shell, cluster.where(values), view.value)
    current = cluster.session_of(values)
    # The map watches the service of the session, which one that is attached to a job has not.
    if command == "slices" and current is not None and current.record.service and not cluster.named(values):
        from pathways_jupyter.widgets.live_views import SliceMap

        return SliceMap(notebook.shell, current, view.value)
    return view


def connect(notebook: NotebookSession, values: Values, output: CellOutput | None = None) -> View | None:
    """Start a session and point JAX at it; its card is drawn in `output`, by default below the cell.

    Where this notebook has such a session already, because the cell is run again, show that one.
    """
    requested = cluster.resolve(values)
    current = process.session()
    if current is not None:
        return _connect_again(notebook, current, requested, values, output)
    try:
        with Waiting(notebook.screen, output) as waiting:
            attempt = waiting.connect(requested, process.variables())
    except KeyboardInterrupt as error:
        if process.session() is None:
            raise SessionError(give_up(error)) from None
        # It came when all was done: the session is fine, only the rest of the cell is lost.
        raise KeyboardInterrupt() from None
    _show(notebook, attempt, waiting.output)
    saved.remind(notebook)
    return None


def _connect_again(
    notebook: NotebookSession, current: Session, requested: ConnectConfig, values: Values, output: CellOutput | None
) -> View | None:
    """Show the session that there is, where it is what `requested` asks for; offer to resume one that is suspended."""
    there = current.config
    if requested.local and there.local:
        # As cluster.Located has filled it in.
        instances = requested.instances or there.instances
        requested = dataclasses.replace(
            requested, instances=instances, kubeconfig=there.kubeconfig, context=there.context
        )
    since = current.event_count
    answer = current.verdict(SessionCommand.CONNECT if requested == there else SessionCommand.CONNECT_OTHERWISE)
    if answer.does is Does.WAITS:
        notebook.wait(current, answer, since)
        return connect(notebook, values, output)
    if answer.does is Does.REFUSES:
        raise answer.error()
    if answer.does is Does.ASKS:
        try:
            resumes = notebook.screen.can_answer and notebook.screen.confirm(f"{answer.sentence} Resume?")
        except ConfigError:
            # The front end cannot ask.
            resumes = False
        if not resumes:
            raise answer.error()
        return resume(notebook, {}, output)
    if not notebook.screen.in_place:
        return status(notebook, values)
    notebook.settle()
    notebook.move(output or notebook.screen.new_output())
    notebook.draw()
    return None


def reconnect(notebook: NotebookSession, values: Values, output: CellOutput | None = None) -> View | None:
    """Replace the proxy of this notebook's session, after a question if that costs arrays; `output` as for connect."""
    current = notebook.need(SessionCommand.RECONNECT)
    config = for_next_proxy(current.config, tpu=values.get("tpu"), wait=values.get("wait"))
    attempt = current.attempt_reconnect(process.variables(), config)
    if current.has_devices and not values.get("yes") and (lost := cost(current)):
        costs = current.verdict(SessionCommand.RECONNECT, arrays=f"its {lost}").sentence
        if not notebook.screen.confirm(f"{costs} Reconnect?"):
            return said("Not reconnected.")
    notebook.end_trace(notebook.screen.say)
    _renew(notebook, current, attempt, config, output)
    return None


def _renew(
    notebook: NotebookSession,
    current: Session,
    attempt: ConnectionAttempt[Session],
    config: ConnectConfig,
    output: CellOutput | None = None,
) -> None:
    """Show how a session gets its new proxy, with the settings `config`, and then its card."""
    titles = RESUMING if current.is_suspended else CONNECTING
    try:
        with Waiting(notebook.screen, output, titles) as waiting:
            if config.local and current.state in {SessionState.LOST, SessionState.SUSPENDED}:
                waiting.reconnect(config, attempt)
            else:
                waiting.through(attempt)
    except KeyboardInterrupt:
        notebook.draw()
        # Where all was done, only the rest of the cell is lost.
        raise KeyboardInterrupt() if current.has_devices else current.interrupted() from None
    _show(notebook, attempt, waiting.output)


def resume(notebook: NotebookSession, values: Values, output: CellOutput | None = None) -> View:
    """Get a new proxy for a suspended session, and put its arrays back; `output` as for connect."""
    current, yes = process.session(), bool(values.get("yes"))
    if current is None:
        raise saved.unresumable()
    if notebook.resumed and not current.is_suspended:
        # Before this cell, since the sidebar has connected it again.
        return said(notebook.resumed)
    current = notebook.need(SessionCommand.RESUME)
    config = current.suspender.settings(current.config, tpu=values.get("tpu"), wait=values.get("wait"))

    def agrees(unfit: Sequence[str], slices: int) -> bool:
        what = f"These arrays cannot be on {count(slices, 'slice')}, and stay saved: {'; '.join(unfit)}."
        return not unfit or yes or notebook.screen.confirm(f"{what} Resume without them?")

    if not agrees(unfit := current.suspender.misfits(config), sum(config.instances.values())):
        return said("Not resumed.")
    yes = yes or bool(unfit)
    if not current.has_slices_of(config):
        attempt = current.attempt_reconnect({}, config, resumes=True)
        _renew(notebook, current, attempt, dataclasses.replace(config, yes=config.yes or yes), output)
        # There may be fewer than were asked for.
        slices = len(current.slices())
        if not agrees(unfit := current.suspender.required().misfits(slices), slices):
            return said("Not resumed. %pathways resume asks for all slices again; %pathways disconnect frees these.")
        yes = yes or bool(unfit)
    return said(notebook.restore(yes=yes))


def cost(current: Session | None) -> str:
    """Return the arrays that `current` has on the TPUs, in words: ``3 arrays (1.2 GB)``; empty if it has none."""
    held = current.count_arrays() if current is not None and current.has_devices else {"count": 0}
    return f"{count(held['count'], 'array')} ({size(held['bytes'])})" if held["count"] else ""


def disconnect(notebook: NotebookSession, values: Values) -> View:
    """End this notebook's session."""
    current = notebook.need(SessionCommand.DISCONNECT)
    saved_as, unsaved = current.suspender.save_name, ""
    if saved_as:
        try:
            current.saves.require(saved_as)
        except PathwaysError as error:
            unsaved = str(error)
            if isinstance(error.__context__, FileNotFoundError):
                # It was deleted, and leads nowhere.
                current.suspender.present = None
    if (watched := sys.modules.get("pathways_jupyter.widgets.live_views")) is not None:
        watched.end_maps()
    notebook.end_trace(notebook.screen.say)
    try:
        ended = current.disconnect(process.variables())
    except KeyboardInterrupt as interrupt:
        raise SessionError(str(interrupt), hint="%pathways sessions lists it until it is gone.") from None
    notebook.draw()
    return arrays.disconnected(current.id, ended.unusable, ended.left, saved_as=saved_as, unsaved=unsaved)


def status(notebook: NotebookSession, values: Values) -> View:
    """Return this notebook's session."""
    current = process.session()
    if current is None:
        return for_programs(None) if values.get("json") else sessions_view.no_session()
    notebook.settle()
    try:
        record = current.status()
    except SessionError:
        record = dataclasses.replace(current.record, supervisor=registry.SILENT)
    return for_programs(record) if values.get("json") else notebook.card(record)


def panel(notebook: NotebookSession, values: Values) -> Any:
    """Buttons that do what connect, reconnect and disconnect do, below the session's card."""
    if not notebook.screen.in_place:
        raise ConfigError("A panel needs a notebook.", hint="In a terminal: %pathways connect --help.")
    from pathways_jupyter.widgets.panel import Panel

    output = notebook.screen.new_output()

    @interrupts.defer_sigint()
    def act(command: str, form: Values) -> View | None:
        if command == "disconnect":
            notebook.move(output)
            return disconnect(notebook, form)
        if command == "connect":
            return connect(notebook, form, output)
        if command == "resume":
            notebook.move(output)
            return resume(notebook, form, output)
        if command == "keep":
            notebook.keep()
            return None
        # The panel has asked.
        return reconnect(notebook, {"yes": True}, output)

    def draw() -> None:
        if process.session() is None:
            output.draw(sessions_view.no_session())
        else:
            notebook.move(output)
            notebook.draw()

    def answer(command: SessionCommand) -> SessionVerdict:
        current = process.session()
        return verdict(None, command) if current is None else current.verdict(command)

    def is_unused() -> bool:
        current = process.session()
        return current is not None and bool(current.record.unused_since)

    made = Panel(
        output,
        draw,
        act,
        answer,
        lambda: cost(process.session()),
        is_unused,
    )
    notebook.on_draw = made.offer_keep
    return made


def events(notebook: NotebookSession, values: Values) -> Any:
    """Show past and future events of this notebook's session; once it has ended, the past ones of the last."""
    session = notebook.latest
    if process.session() is None:
        from pathways_jupyter.render import events as render

        notebook.screen.say(f"This notebook is not connected. Its last session was {session.id}.")
        return render.view(session.events(), note="The session has ended.")
    if not notebook.screen.in_place:
        from pathways_jupyter.render import events as render

        return render.view(session.events())
    from pathways_jupyter.widgets.live_views import Timeline

    return Timeline(notebook.shell, session)


def env(notebook: NotebookSession, values: Values) -> View:
    """Return the variables by which other processes share this session."""
    current, share = notebook.need(SessionCommand.RUN), bool(values.get("set"))
    return sessions_view.environment(current.environment(share=share), shared=share, embedded=current.is_embedded)


def profile_start(notebook: NotebookSession, values: Values) -> View:
    """Start a trace of this session's chips."""
    profile.of_session(notebook.need(SessionCommand.RUN), values).start()
    return said("The chips are traced from now on; %pathways profile stop shows what they did.")


def profile_stop(notebook: NotebookSession, values: Values) -> None:
    """Stop the trace, and show it."""
    session = process.session()
    trace = None if session is None else session.trace
    if trace is None:
        raise SessionError("No trace is being taken.", hint="%pathways profile start begins one.")
    profile.finish(notebook.screen, trace)


def _show(notebook: NotebookSession, attempt: ConnectionAttempt[Session], output: CellOutput | None) -> None:
    """Show the session that `attempt` has connected, and what happened to the user's arrays."""
    notebook.watch(attempt.session, output)
    if output is None:
        notebook.screen.line(notebook.card().text)
    else:
        notebook.draw()
    lines = arrays.switched(attempt.switched.unusable, attempt.switched.left)
    if lines:
        notebook.notify(lines)


_COMMANDS: Mapping[str, Callable[[NotebookSession, Values], Any]] = {
    "connect": connect,
    "disconnect": disconnect,
    "reconnect": reconnect,
    "status": status,
    "panel": panel,
    "events": events,
    "env": env,
    "profile start": profile_start,
    "profile stop": profile_stop,
    "suspend": saved.suspend,
    "resume": resume,
    "save": saved.save,
    "load": saved.load,
    "fetch": files.fetch,
    "move": move.move,
    "elastic": elastic.show,
    "elastic inject": elastic.inject,
    "elastic heal": elastic.heal,
    "elastic export": elastic.export,
}
"""Commands that act on the notebook itself."""
