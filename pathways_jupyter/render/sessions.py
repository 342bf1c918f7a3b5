"""A session as a card (its state, what it is connected to, its devices by slice, and what happened last), sessions as a
table, and the variables by which other processes share one.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pathways_jupyter.base import tpu
from pathways_jupyter.base.events import Event, EventKind, SessionSlice, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import capitalized, clock, count, to_cluster
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import events as timeline
from pathways_jupyter.render import parts, text
from pathways_jupyter.render.parts import Part, code, fields, head, indented, line, muted, toned
from pathways_jupyter.render.slices import THIS_NOTEBOOK, Box, Owner, map_of
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.service import names
from pathways_jupyter.service.podstate import State
from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord

_CONNECTING = {SessionState.STARTING, SessionState.WAITING}
_USABLE = {SessionState.CONNECTED, SessionState.DEGRADED}
_WITHOUT_SLICES = {SessionState.LOST, SessionState.SUSPENDED}
_BEGINS = {SessionState.STARTING, SessionState.SUSPENDED}
_NEWS = {
    EventKind.SLICE_DOWN,
    EventKind.SLICE_HEALED,
    EventKind.PROXY_LOST,
    EventKind.SUPERVISOR_LOST,
    EventKind.WARNING,
}
_RECENT = 5

_STATE_DETAILS: Mapping[SessionState, str] = {
    SessionState.WAITING: " for slices",
    SessionState.INTERRUPTED: ", arrays are kept",
    SessionState.SUSPENDED: ", arrays are saved",
}

_ELSEWHERE = (
    "JAX computes on {} by default: its settings were changed. "
    "%pathways reconnect gets a new proxy, and points JAX at it."
)
_ADVICE: Mapping[SessionState, str] = {
    SessionState.INTERRUPTED: "Arrays are kept; cells continue once the connection is back. Interrupt stops a cell.",
    SessionState.LOST: advice("Its arrays on TPUs are lost. {reconnect} gets a new proxy with the same settings."),
    SessionState.SUSPENDING: "Its arrays are being saved; then its slices are free.",
    SessionState.SUSPENDED: advice("Its arrays are saved, and its slices were freed. {resume} continues."),
    SessionState.RESUMING: advice("Its arrays are saved. {resume} brings them back."),
    SessionState.FAILED: advice("{doctor} looks for the cause."),
}
_JOB_ADVICE: Mapping[SessionState, str] = {
    **_ADVICE,
    SessionState.LOST: advice("Its arrays on TPUs are lost. {reconnect} attaches again, once the job runs."),
    SessionState.SUSPENDED: advice("Its arrays are saved; its slices were left to the job. {resume} continues."),
}


def card(
    record: SessionRecord,
    devices: Mapping[int, Sequence[str]],
    events: Sequence[Event] = (),
    *,
    elsewhere: str = "",
    listed: int | None = None,
    at: float | None = None,
    live: bool = False,
) -> View:
    """Return the session's card.

    It is saved in the notebook's file and may be read long after the session, whose kernel may have been killed. So in
    HTML it says that it was connected at the time when it was drawn, and shows no durations. The card of a closed
    session shows what there was, as it usually stands where the session began.

    Args:
      record: The session.
      devices: Kinds of JAX's devices by slice index, e.g. ``{0: ["TPU v6 lite", ...]}``.
      events: What happened, oldest first.
      elsewhere: The platform on which JAX computes by default, if not on these devices.
      listed: How many of the first of these may be listed as news; all when left out.
      at: When this was so; now when left out.
      live: Whether it is drawn again when something changes; each session has one such card at most.
    """
    at = time.time() if at is None else at
    if number := sum(record.instances.values()):
        # A card is also drawn before JAX has switched to a new proxy, which may have fewer slices than the former.
        devices = {index: kinds for index, kinds in devices.items() if index < number}
    tone, state = tone_of(record), state_words(record)
    if elsewhere and tone is Tone.OK:
        tone = Tone.WARN
    may_end = record.state.is_connected and tone is not Tone.FAIL
    then = f"was {state} at {text.moment(at)}"
    news = [event for event in events[_of_this_proxy(events) : listed] if event.kind in _NEWS][-_RECENT:]
    remark = _ELSEWHERE.format(elsewhere) if elsewhere and may_end else state_advice(record, at)
    lines = [*map(timeline.event_line, news), *([line(remark)] if remark else [])]
    has_map = devices and not record.supervisor and record.state.is_connected
    shown = [
        head(
            f"Session {record.id}",
            parts.once(tone, state, then) if may_end else toned(tone, state),
            _when(record, events, at),
            mark=tone.mark,
        ),
        fields(_facts(record, devices)),
        map_of(_boxes(record, devices)) if has_map else Part("", ""),
        *map(indented, lines),
    ]
    alive = record.id if may_end and live else ""
    return drawn(record, parts.card(Tone.NONE if may_end and not live else tone, *shown, live=alive))


def _of_this_proxy(events: Sequence[Event]) -> int:
    """Return the index of the first event of the newest proxy, or of being suspended: earlier news are over."""
    begin = (index for index, event in enumerate(events) if event.data.get("state") in _BEGINS)
    return max(begin, default=0)


def _facts(record: SessionRecord, devices: Mapping[int, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the rows of a card: names, and values that are empty where there is nothing to say."""
    job, suspended = record.pathways_job, record.state is SessionState.SUSPENDED
    # What was lost is the job's proxy: it may have been deleted.
    stays = "" if record.state is SessionState.LOST else ", which stays when this session ends"
    return [
        ("service", record.service),
        ("attached to", f"job {job}{stays}" if job else ""),
        ("slices", _slices_words(record)),
        ("devices", "" if record.supervisor else _devices(record, devices)),
        # While it is replaced, the pod is still the previous one's; a suspended session's is removed.
        ("proxy", "" if suspended else record.job if record.state in _CONNECTING else record.pod or record.job),
        ("cluster", record.context),
        ("namespace", record.namespace),
        # The resumed session's card is drawn before the kernel knows that its record has no save any more.
        ("saved", "" if record.saved is None or record.state in _USABLE else str(record.saved)),
        ("data path", record.data_path if record.state in _USABLE else ""),
        ("distance", record.distance if record.state.is_connected else ""),
    ]


def state_advice(record: SessionRecord, at: float) -> str:
    """Return what the session's state means for the user, and what to do about it; empty where nothing is to be done.

    Args:
      at: When it is shown, in seconds since the epoch.
    """
    if record.supervisor == registry.SILENT:
        return advice(
            "The tunnel is in its supervisor, process {pid}, which does not answer: cells wait for it. If it was "
            "stopped, kill -CONT {pid} continues it. After kill -9 {pid}, {reconnect} starts another one.",
            pid=record.pid,
        )
    if record.supervisor == registry.CUT_OFF:
        return "The connection to its pod is cut. The session and its kernel go on there; this is how it was before."
    if record.supervisor:
        return "Its supervisor has ended. pathways-jupyter clean removes what it may have left behind."
    if _is_useless(record):
        return _loss(record)
    if record.suspends_at:
        return f"Nothing is computed: suspends at {text.later(record.suspends_at, at)}, unless a cell runs before."
    if record.unused_since:
        held = count(sum(record.instances.values()), "slice")
        since = text.later(record.unused_since, at)
        return advice(
            "Nothing was computed since {since}. It holds {held}; {suspend} frees them and keeps the arrays.",
            since=since,
            held=held,
        )
    if record.state is SessionState.DEGRADED and not all(each.up for each in record.slices):
        return _loss(record)
    if record.state is SessionState.RESUMING and record.transfer is not None:
        return "Its arrays are being read; what cannot be read stays saved."
    # What is lost with a suspended session, such as its supervisor, is none of its arrays.
    is_saved = record.saved is not None and record.state is SessionState.LOST
    state = SessionState.RESUMING if is_saved else record.state
    return (_JOB_ADVICE if record.pathways_job else _ADVICE).get(state, "")


def _loss(record: SessionRecord) -> str:
    """Say which slices are down, and what that means."""
    down = [str(each) for each in record.slices if not each.up]
    is_one = len(down) == 1
    named = capitalized(f"{', '.join(down)} {'is' if is_one else 'are'} down. ") if down else ""
    if _is_useless(record):
        return f"{named}All arrays on TPUs are lost. New workers restore the slices."
    restored = (
        "Its arrays are lost; a new worker restores it" if is_one else "Their arrays are lost; new workers restore them"
    )
    return f"{named}{restored}. Other slices work."


def _slices_words(record: SessionRecord) -> str:
    slices = text.instances(record.instances) if record.instances else ""
    return f"none; {slices} before" if slices and record.state in _WITHOUT_SLICES else slices


def chips(record: SessionRecord) -> int:
    """Return the number of chips of all slices that a session has asked for."""
    return sum(number * sum(tpu.chips_of_hosts(name)) for name, number in record.instances.items())


def facts(record: SessionRecord) -> list[tuple[str, str]]:
    """Return what a session has, as names and values, for a page that shows its cluster and its pods elsewhere."""
    is_suspended = record.state is SessionState.SUSPENDED
    devices = chips(record)
    up = [] if record.supervisor else [each.up for each in record.slices]
    # All slices of a service have the same type.
    usable = str(devices) if all(up) else f"{devices * sum(up) // len(up)} of {devices}"
    rows = [
        ("Job", record.pathways_job),
        ("Service", "" if record.pathways_job else names.service_of(record.service)[0] or record.service),
        ("Slices", _slices_words(record)),
        ("Devices", usable if up else ""),
        ("Saved", "" if record.saved is None else str(record.saved)),
        ("Distance", "" if is_suspended or record.supervisor else to_cluster(record.round_trip)),
        ("Session", record.id),
    ]
    return [(name, value) for name, value in rows if value]


def no_session() -> View:
    """Return the card of a notebook without a session."""
    how = "%pathways connect --help shows how; %pathways connect --local --tpu tpuv6e:2x2=2 needs no cluster."
    return drawn(None, line(toned(Tone.NONE), "This notebook is not connected."), indented(line(muted(how))))


def table(records: Sequence[SessionRecord], *, mine: str = "") -> View:
    """Sessions on this machine, as a table.

    Args:
      records: What to show.
      mine: Id of the caller's own session; it is marked.
    """
    now = time.time()
    rows = []
    for record in records:
        owner = record.owner
        service = names.service_of(record.service)[0] or record.service
        rows.append(
            (
                code(record.id),
                toned(tone_of(record), state_words(record) + _unused(record, now)),
                text.duration(now - record.since),
                tpu.format_instances(record.instances),
                f"job {record.pathways_job}" if record.pathways_job else service,
                f"{owner} (this one)" if record.id == mine else owner,
                text.duration(now - record.created),
                str(record.pid),
            )
        )
    shown = parts.table(("session", "state", "for", "slices", "service", "notebook", "age", "pid"), rows)
    return listing(list(records), shown, none="No sessions on this machine.")


def _unused(record: SessionRecord, now: float) -> str:
    if record.suspends_at:
        return f", suspends in {text.duration(record.suspends_at - now)}"
    return f", unused for {text.duration(now - record.unused_since)}" if record.unused_since else ""


def _is_useless(record: SessionRecord) -> bool:
    return record.state is SessionState.DEGRADED and not any(each.up for each in record.slices)


def tone_of(record: SessionRecord) -> Tone:
    """Return a session's tone: its state's, unless its supervisor or all of its slices are gone."""
    if record.supervisor == registry.CUT_OFF:
        return Tone.WARN
    return Tone.FAIL if record.supervisor or _is_useless(record) else record.state.tone


def state_words(record: SessionRecord) -> str:
    """Return a session's state in words: ``degraded, 1 of 2 slices``, ``resuming, 0.3 GB of 4.0 GB``."""
    if record.supervisor:
        return record.supervisor
    if record.transfer is not None:
        return f"{record.state}, {record.transfer}"
    if record.kernel_ended and record.state.is_connected:
        until = record.kernel_ended + float(record.config.get("linger") or 0.0)
        return f"{record.state}, kept for another kernel{f' until {clock(until)}' if math.isfinite(until) else ''}"
    if record.state is SessionState.STARTING and record.saved is not None:
        # The first part of it is a new proxy.
        return str(SessionState.RESUMING)
    # Its slices may all be up for a moment before its state says so.
    if record.state is SessionState.DEGRADED and not all(each.up for each in record.slices):
        return f"{record.state}, {sum(each.up for each in record.slices)} of {count(len(record.slices), 'slice')}"
    return f"{record.state}{_STATE_DETAILS.get(record.state, '')}"


def _when(record: SessionRecord, events: Sequence[Event], at: float) -> Part:
    """Since when it is so, and when the card was drawn; for a closed session, when it was connected."""
    if record.state is not SessionState.CLOSED:
        since = f"since {text.moment(record.since)}"
        before = f"was {record.state} " if record.supervisor else ""
        said = f"{before}{since} (as of {text.later(at, record.since)})"
        # In HTML the state has the time: "was connected at 22:47 (since 22:40)"
        return (
            Part(said, muted(f"({since})").html) if record.state.is_connected and not record.supervisor else muted(said)
        )
    began = next((event.at for event in events if event.data.get("state") == SessionState.CONNECTED), record.created)
    return muted(f"was connected from {text.moment(began)} to {text.later(record.state_since, began)}")


def _devices(record: SessionRecord, devices: Mapping[int, Sequence[str]]) -> str:
    """Return the number of usable devices, by slice; for a closed session, the number that there were."""
    if record.state is SessionState.CLOSED:
        there_were = Counter(kind for each in devices.values() for kind in each)
        return ", ".join(f"{number} × {kind}" for kind, number in there_were.items())
    if not record.state.is_connected:
        return ""
    slices = _slices(record, devices)
    total = sum(len(kinds) for kinds in devices.values())
    up = sum(len(devices[each.index]) for each in slices if each.up)
    by_slice = [
        f"{each}: {f'{len(kinds)} × {kinds[0]}' if each.up else 'down'}"
        for each in slices
        if (kinds := devices[each.index])
    ]
    return f"{up if up == total else f'{up} of {total}'} ({', '.join(by_slice)})" if by_slice else ""


def _boxes(record: SessionRecord, devices: Mapping[int, Sequence[str]]) -> list[Box]:
    """Return the session's own slices, in the order in which they were asked for."""
    types = [name for name, number in record.instances.items() for _ in range(number)]
    boxes = []
    for each in _slices(record, devices):
        number, detail = each.number, "" if each.number == each.index else f"your {each.index}"
        if number is None:
            number, detail = each.index, "as JAX counts"
        kind = types[each.index] if each.index < len(types) else ""
        health, word = (State.READY, THIS_NOTEBOOK) if each.up else (State.DOWN, State.DOWN)
        boxes.append(Box(number, kind, health, word, Owner.THIS, detail=detail))
    return boxes


def _slices(record: SessionRecord, devices: Mapping[int, Sequence[str]]) -> list[SessionSlice]:
    """Return the session's slices with JAX devices, including those that the record does not describe."""
    by_index = {each.index: each for each in record.slices}
    return [by_index.get(index, SessionSlice(None, index, up=True)) for index in sorted(devices)]


_SET = "Set for every process that this notebook starts, until it disconnects."
_SERVED = "A process with these variables is a second client of this session's proxy: same chips, own arrays."
_UNTRIED = (
    "A process with these variables is a second client of this session's proxy. Whether a real Pathways proxy serves "
    "two at a time is not known; pathways-jupyter run gives a program a proxy of its own."
)


def environment(variables: Mapping[str, str], *, shared: bool, embedded: bool) -> View:
    """Return the variables by which other processes share a session, to copy into a shell, and what they do.

    Args:
      shared: They are set in this process's environment.
      embedded: The proxy is the embedded cluster's.
    """
    exports = [line(code(f"export {name}={shlex.quote(value)}")) for name, value in variables.items()]
    notes = [*([_SET] if shared else []), _SERVED if embedded else _UNTRIED]
    # In text, all of it can be pasted into a shell.
    return drawn(dict(variables), *exports, *(Part(f"# {each}", line(muted(each)).html) for each in notes))
