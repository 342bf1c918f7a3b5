"""One table: what each command does in each state of a session, and what to say where it does not.

Magics, Python's calls, the command line and the Jupyter server ask it; the sidebar gets the verdicts with the session's
row. So a session that is suspended is called that, and leads to the same command, wherever one meets it. The words say
what there is; a hint names the command that helps, in the words of the face that shows it.

The rows are the states of :class:`~pathways_jupyter.base.events.SessionState`, and a few situations that no state names
(:class:`Situation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import Face, advice, filled, worded
from pathways_jupyter.base.text import clock
from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord


class SessionCommand(StrEnum):
    """Uses of a session; several commands of a face may be the same use."""

    CONNECT = "connect"
    """Connect with the settings that the session has: its cell is run again."""
    CONNECT_OTHERWISE = "connect-otherwise"
    """Connect with other settings."""
    RECONNECT = "reconnect"
    SUSPEND = "suspend"
    RESUME = "resume"
    DISCONNECT = "disconnect"
    SAVE = "save"
    LOAD = "load"
    RUN = "run"
    """Run something on its hosts or beside this process: ``%%colocated``, a trace, elastic training, ``env``."""
    USE = "use"
    """Use an array or a device of it in a cell."""


class Does(StrEnum):
    """Answers to whether a command acts."""

    DOES = "does"
    ASKS = "asks"
    """It acts, once the user has read what that costs. Where the command is typed, that is the answer."""
    WAITS = "waits"
    """It cannot act yet; what it needs comes by itself."""
    REFUSES = "refuses"


class Situation(StrEnum):
    """The rows of the table; the values of :class:`~pathways_jupyter.base.events.SessionState` are rows too."""

    NONE = "none"
    """There is no session."""
    UNRESUMED = "unresumed"
    """There is a new proxy, the saved arrays are not on it, and nothing reads them at the moment."""
    SILENT = registry.SILENT
    CUT_OFF = registry.CUT_OFF
    ABANDONED = registry.ABANDONED


Row = SessionState | Situation


@dataclass(frozen=True)
class SessionVerdict:
    """Answer to a command on a session as it is now.

    Attributes:
      does: Whether it acts.
      sentence: What there is, and what the command costs or why it does not act; empty where it just acts.
      hint: What to do instead, or to keep what it costs; empty where there is nothing to do.
    """

    does: Does
    sentence: str = ""
    hint: str = ""

    @property
    def acts(self) -> bool:
        """Return whether the command acts, perhaps after a question."""
        return self.does in {Does.DOES, Does.ASKS}

    def error(self) -> SessionError:
        """Return these words as an error."""
        return SessionError(self.sentence, hint=self.hint)

    def require(self) -> None:
        """Check that the command acts.

        Raises:
          SessionError: It refuses, or would have to wait.
        """
        if not self.acts:
            raise self.error()

    def to_json(self, face: Face) -> dict[str, Any]:
        """Return JSON values: ``does``, ``sentence`` and ``hint``, worded for `face`."""
        return {"does": self.does, "sentence": self.sentence, "hint": worded(self.hint, face)}


_DOES = SessionVerdict(Does.DOES)


def _asks(sentence: str, hint: str = "") -> SessionVerdict:
    return SessionVerdict(Does.ASKS, sentence, hint)


def _waits(sentence: str, hint: str = "") -> SessionVerdict:
    return SessionVerdict(Does.WAITS, sentence, hint)


def _refuses(sentence: str, hint: str) -> SessionVerdict:
    return SessionVerdict(Does.REFUSES, sentence, hint)


def _row(otherwise: SessionVerdict, **verdicts: SessionVerdict) -> Mapping[SessionCommand, SessionVerdict]:
    """Return a row of the table: `otherwise` for each command that is not named."""
    return {each: verdicts.get(each.replace("-", "_"), otherwise) for each in SessionCommand}


_PROGRESS = advice("{status} shows how far it is.")
_RESUME = advice("{resume} brings them back.")
_UNCONNECTED = advice("{connect:--help} shows how; {local} needs no cluster.")
_OTHERWISE = advice(
    "{disconnect} ends it, so that other settings can be used; {reconnect} gets a new proxy with the same."
)

_NOT_SUSPENDED = _refuses("Session {session} is not suspended.", advice("{status} shows it."))
_WORKS = _row(
    _DOES,
    connect_otherwise=_refuses("Session {session} is connected already.", _OTHERWISE),
    reconnect=_asks("Session {session} works. A new proxy costs {arrays} on TPUs.", advice("{suspend} keeps arrays.")),
    resume=_NOT_SUSPENDED,
    disconnect=_asks(
        "Session {session} works. Its end costs {arrays} on TPUs.",
        advice("{suspend} frees the slices and keeps arrays."),
    ),
)
_INTERRUPTED = _waits(
    "Session {session} is interrupted since {since}, and tries again. Arrays are kept.",
    advice("It goes on once the connection is back; Interrupt ends the wait."),
)
_ENDING = "Session {session} is ending."
_ENDED = "Session {session} has ended."
_CONNECT = advice("{connect} makes a new one.")
_OVER = _row(
    _refuses(_ENDED, _CONNECT),
    connect=_DOES,
    connect_otherwise=_DOES,
    use=_DOES,
    load=_refuses(_ENDED, advice("{connect} makes a new one, which can load saves.")),
)
_IS_SUSPENDED = "Session {session} is suspended since {since}, with {arrays} saved."
_SUSPENDED = _refuses(_IS_SUSPENDED, _RESUME)
_NOT_BACK = "Session {session} has a new proxy, and not yet its saved arrays on it: {arrays}."
# An empty value marks a parameter, which verdict() fills in.
_STAYS = advice("The save {place} stays until you delete it.", place="")

TABLE: Mapping[Row, Mapping[SessionCommand, SessionVerdict]] = {
    Situation.NONE: _row(
        _refuses("This notebook is not connected.", _UNCONNECTED),
        connect=_DOES,
        connect_otherwise=_DOES,
        use=_DOES,
    ),
    SessionState.STARTING: _row(
        _waits("Session {session} is being connected since {since}.", _PROGRESS), disconnect=_DOES
    ),
    SessionState.WAITING: _row(
        _waits("Session {session} waits for slices since {since}.", _PROGRESS), disconnect=_DOES
    ),
    SessionState.CONNECTED: _WORKS,
    SessionState.DEGRADED: {
        **_WORKS,
        SessionCommand.RECONNECT: _asks(
            "Session {session} is degraded{down}. A new proxy costs {arrays} on TPUs.",
            advice("{suspend} keeps arrays."),
        ),
    },
    SessionState.INTERRUPTED: _row(
        _INTERRUPTED,
        connect=_DOES,
        connect_otherwise=_WORKS[SessionCommand.CONNECT_OTHERWISE],
        reconnect=_asks(
            "Session {session} is interrupted since {since}, and tries again. Waiting keeps {arrays} on TPUs, a "
            "new proxy costs them."
        ),
        resume=_NOT_SUSPENDED,
        disconnect=_asks(
            "Session {session} is interrupted since {since}, and tries again. Waiting keeps {arrays} on TPUs, its "
            "end costs them."
        ),
    ),
    SessionState.LOST: _row(
        _refuses(
            "The proxy of session {session} is lost since {since}, and all arrays on it.",
            advice("{reconnect} connects again, {disconnect} ends the session."),
        ),
        use=_refuses(
            "The proxy of session {session} is lost since {since}, and all arrays on it.",
            advice("{reconnect} connects again; make meshes and shardings from jax.devices() again."),
        ),
        reconnect=_DOES,
        disconnect=_DOES,
    ),
    SessionState.SUSPENDING: _row(
        _waits("Session {session} is being suspended: {moved}.", _PROGRESS),
        disconnect=_asks(
            "Session {session} is being suspended: {moved}. Its end costs its arrays, which are not all saved.",
            advice("Interrupt leaves it as it was."),
        ),
    ),
    SessionState.SUSPENDED: _row(
        _SUSPENDED,
        connect=_asks(_IS_SUSPENDED, _RESUME),
        connect_otherwise=_refuses(
            _IS_SUSPENDED,
            advice("{resume} brings them back; {disconnect} ends it, and they stay in the save {place}.", place=""),
        ),
        resume=_DOES,
        disconnect=_asks(_IS_SUSPENDED, _STAYS),
        run=_refuses(_IS_SUSPENDED, advice("{resume} brings them back, without the names on its hosts.")),
        use=_refuses(_IS_SUSPENDED, advice("{resume} brings them back, with their meshes and shardings.")),
    ),
    SessionState.RESUMING: _row(
        _waits("Session {session} is being resumed: {moved}.", _PROGRESS),
        disconnect=_asks("Session {session} is being resumed, with {arrays} saved.", _STAYS),
    ),
    Situation.UNRESUMED: _row(
        _refuses(_NOT_BACK, _RESUME),
        connect=_asks(_NOT_BACK, _RESUME),
        resume=_DOES,
        disconnect=_asks(_NOT_BACK, _STAYS),
    ),
    SessionState.CLOSING: _row(
        _refuses(_ENDING, advice("Connect again once it has ended.")),
        connect=_waits(_ENDING, _PROGRESS),
        connect_otherwise=_waits(_ENDING, _PROGRESS),
        disconnect=_waits(_ENDING, _PROGRESS),
        use=_DOES,
    ),
    SessionState.CLOSED: _OVER,
    SessionState.FAILED: _OVER,
    Situation.SILENT: _row(
        _waits(
            "The supervisor of session {session}, process {pid}, does not answer.",
            advice(
                "If it was stopped, kill -CONT {pid} continues it. A restart of the kernel ends the session.", pid=""
            ),
        ),
        disconnect=_DOES,
    ),
    Situation.CUT_OFF: _row(
        _refuses(
            "Session {session} is beside the chips, and the connection to its pod is cut.",
            "It goes on there. Try again when the line is back.",
        ),
    ),
    Situation.ABANDONED: _row(
        _refuses(
            "The supervisor of session {session} has ended.",
            advice("pathways-jupyter clean removes what it may have left behind."),
        ),
        connect=_DOES,
        connect_otherwise=_DOES,
        use=_DOES,
    ),
}


def row_of(record: SessionRecord | None) -> Row:
    """Return the row of the table for a session as it is now; None for no session."""
    if record is None:
        return Situation.NONE
    if record.supervisor:
        return Situation(record.supervisor)
    if record.saved is not None and record.state in {SessionState.STARTING, SessionState.WAITING}:
        # The first part of resuming is a new proxy.
        return SessionState.RESUMING
    if record.state is SessionState.RESUMING and record.transfer is None:
        return Situation.UNRESUMED
    return record.state


def verdict(record: SessionRecord | None, command: SessionCommand, *, arrays: str = "") -> SessionVerdict:
    """Return the answer to `command` on a session as it is now.

    Args:
      record: The session; None for no session.
      arrays: What it has on its TPUs, in words, where that is known: ``3 arrays (1.2 GB)``.
    """
    answer = TABLE[row_of(record)][command]
    if record is None or not answer.sentence:
        return answer
    saved, transfer = record.saved, record.transfer
    amount = (arrays or "its arrays") if saved is None else saved.amount
    down = [str(each) for each in record.slices if not each.up]
    words: dict[str, str | int] = {
        "session": record.id,
        "down": f": {', '.join(down)} {'are' if len(down) > 1 else 'is'} down" if down else "",
        "since": clock(record.since or record.created),
        "arrays": amount,
        "moved": str(transfer or amount),
        "place": "" if saved is None else saved.place.rpartition("/")[2],
        "pid": record.pid,
    }
    return replace(answer, sentence=answer.sentence.format_map(words), hint=filled(answer.hint, words))


def ended(record: SessionRecord) -> SessionVerdict:
    """Return what there is to say of a session that has ended, though its record does not say so yet."""
    return verdict(replace(record, state=SessionState.CLOSED), SessionCommand.RUN)


def verdicts(record: SessionRecord) -> Iterator[tuple[SessionCommand, SessionVerdict]]:
    """Yield each command with its verdict on a session."""
    for command in SessionCommand:
        yield command, verdict(record, command)
