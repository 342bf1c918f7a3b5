"""Pictures of typed values: true, safe, and readable without colours."""

import dataclasses
import re
import time
from pathlib import Path

import pytest
from session_records import bare_record

from pathways_jupyter.base.events import Event, EventKind, SessionSlice, SessionState, Stage, SuspendedArrays, Transfer
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.commands.declaration import Command, Option
from pathways_jupyter.multihost.run import Run
from pathways_jupyter.multihost.run_events import HostPhase, HostStatus
from pathways_jupyter.multihost.targets import Target
from pathways_jupyter.render import (
    arrays,
    checks,
    events,
    help,
    jobs,
    multihost,
    parts,
    progress,
    services,
    sessions,
    slices,
    text,
)
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.jobs import JobDetails
from pathways_jupyter.service.model import Holder, Reclaimable, Service, Slice, SliceHost
from pathways_jupyter.service.pathwaysjob.description import JobInfo
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.status import Overview
from pathways_jupyter.session import registry
from pathways_jupyter.session.kernel.user_arrays import NamedArray

NOW = time.time()
EVIL = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _at_one_time(monkeypatch):
    """Draw everything at the same moment."""
    monkeypatch.setattr(time, "time", lambda: NOW)


def record(**changes):
    values = {
        "id": "4f2a",
        "pid": 7,
        "notebook": "work/train.ipynb",
        "user": "ada",
        "created": NOW - 187,
        "state": SessionState.CONNECTED,
        "service": "pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
        "instances": {"tpuv6e:2x2": 2},
        "state_since": NOW - 187,
        "slices": (SessionSlice(0, 0, up=True), SessionSlice(1, 1, up=True)),
    }
    return bare_record(**{**values, **changes})


def service(count=3, hosts=4, **changes):
    mine = Holder("4f2a", "ada", "work/train.ipynb", NOW - 60, {"tpuv6e:4x4": 1}, False, 1, "job-ada", "pod-ada")
    waits = Holder("77aa", "eve", "", NOW - 80, {"tpuv6e:4x4": 2}, True, 0, "job-eve", "pod-eve")
    ready = tuple(SliceHost(index, State.READY, f"w-{index}") for index in range(hosts))
    broken = (*ready[:-1], SliceHost(hosts - 1, State.DOWN, "w", reason="CrashLoopBackOff"))
    drawn = (Slice(0, State.READY, ready, "w0", mine), Slice(1, State.DOWN, broken, "w1"))
    rest = tuple(Slice(index, State.READY, ready, f"w{index}") for index in range(2, count))
    values = {
        "name": "pathways-cluster",
        "namespace": "default",
        "address": "head:29001",
        "instance_type": "tpuv6e:4x4",
        "head": State.READY,
        "slices": (*drawn, *rest),
        "holders": (mine, waits),
        "certain": True,
    }
    return Service(**{**values, **changes})


def overview(said):
    now = {"state": State.DOWN, "ready": 0, "in_use": 0, "free": 0, "users": (said,), "jax": said, "reason": said}
    return Overview(said, said, said, said, 1, 1, said, said, created=NOW - 60, **now)


def hosts(said):
    target = Target(said)
    lost = HostStatus(target, HostPhase.LOST, last_line=said, message=said, hint=said)
    return multihost.hosts(Run("r-00000000", said, said, (target,), Path(said), started=NOW - 60), (lost,))


DEVICES = {0: ["TPU v6 lite"] * 4, 1: ["TPU v6 lite"] * 4}
DOWN = Event(EventKind.SLICE_DOWN, "Slice 1 is down.", NOW - 5, {"slice": 1})
FAILED = JobInfo("train", "default", "Failed", f"ValueError: {EVIL}", 0, "tpuv6e:2x2", 1, False, "PathwaysJob", 0.0)
VIEWS = {
    "session": lambda: sessions.card(record(notebook=EVIL, context=EVIL), DEVICES, [Event(EventKind.WARNING, EVIL)]),
    "sessions": lambda: sessions.table([record(notebook=EVIL, service=f"{EVIL}:1")]),
    "slices": lambda: slices.view([service(name=EVIL, address=EVIL)]),
    "events": lambda: events.view([Event(EventKind.WARNING, EVIL)]),
    "job": lambda: jobs.details(JobDetails(FAILED, (), (), ())),
    "notice": lambda: events.notice([events.News(parts.Tone.WARN, EVIL, EVIL)]),
    "doctor": lambda: checks.findings([Finding(EVIL, Tone.FAIL, EVIL, EVIL)], Face.NOTEBOOK),
    "service": lambda: services.details(overview(EVIL)),
    "services": lambda: services.view([overview(EVIL)]),
    "hosts": lambda: hosts(EVIL),
    "help": lambda: help.command(Command(EVIL, EVIL, (Option("--x", EVIL),), examples={EVIL: EVIL}), EVIL),
    "environment": lambda: sessions.environment({"X": EVIL}, shared=True, embedded=False),
    "arrays": lambda: arrays.disconnected(EVIL, [NamedArray(EVIL, (1,), "int8", 1)], EVIL),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_others_wrote_is_text_and_never_markup(view):
    assert EVIL not in VIEWS[view]().html


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_assumes_a_light_page(view):
    html = VIEWS[view]().html
    assert not re.search(r"background(-color)?: *(#fff|white)|[^-]color: *(#000|black)", html)


DEGRADED = {
    "state": SessionState.DEGRADED,
    "state_since": NOW - 5,
    "slices": (SessionSlice(0, 0, up=True), SessionSlice(1, 1, up=False)),
}


def test_a_session_shows_its_devices_and_what_happened_last():
    drawn = sessions.card(record(), DEVICES, [DOWN])
    assert "data path" in drawn.text
    began, drawn_at = text.moment(NOW - 187), text.later(NOW, NOW - 187)
    assert f"connected, since {began} (as of {drawn_at})" in drawn.text
    assert f"since {began}" in drawn.html
    assert "8 (slice 0: 4 × TPU v6 lite, slice 1: 4 × TPU v6 lite)" in drawn.text
    assert "Slice 1 is down." in drawn.text


def test_a_card_that_may_be_read_after_its_kernel_was_killed_says_when_it_was_connected():
    for live in (False, True):
        html = sessions.card(record(), DEVICES, at=NOW, live=live).html.partition("</style>")[2]
        assert f">was connected at {text.moment(NOW)}<" in html
        assert 'class="pw-card pw-none' in html
        # A page that knows the session colours the one card that follows it.
        assert ("pw-live-4f2a" in html) == live
    closed = sessions.card(record(state=SessionState.CLOSED), DEVICES, live=True).html
    assert "pw-live" not in closed


def test_a_map_that_may_be_seen_after_its_kernel_was_killed_says_when_it_was_so():
    static, live, over = (
        slices.view([service()], **more).html.partition("</style>")[2]
        for more in ({}, {"live": "4f2a"}, {"note": "The session has ended."})
    )
    assert ", as of 20" in static
    assert ", as of 20" in live
    assert 'class="pw-card pw-ok"' in static
    # Coloured only by a page that knows that the session lives.
    assert 'class="pw-card pw-none pw-once-ok pw-live-4f2a"' in live
    assert 'class="pw-card pw-none"' in over
    assert "pw-tone pw-ok" not in over.partition('class="pw-map"')[0]
    assert "as of" not in slices.view([service()], live="4f2a").text + slices.view([service()]).text


def test_a_session_with_a_slice_down_does_not_look_connected():
    drawn = sessions.card(record(**DEGRADED), DEVICES, [DOWN])
    assert drawn.text.startswith(f"! Session 4f2a: degraded, 1 of 2 slices, since {text.moment(NOW - 5)}")
    assert "4 of 8 (slice 0: 4 × TPU v6 lite, slice 1: down)" in drawn.text
    assert "slice 0, tpuv6e:2x2, this notebook" in drawn.html
    assert "slice 1, tpuv6e:2x2, down" in drawn.html
    assert "degraded, 1 of 2 slices" in sessions.table([record(**DEGRADED)]).text


def test_a_session_without_a_slice_that_is_up_or_a_supervisor_that_answers_is_red():
    down = tuple(dataclasses.replace(each, up=False) for each in DEGRADED["slices"])
    for changes, said in (
        ({**DEGRADED, "slices": down}, "degraded, 0 of 2 slices"),
        ({"supervisor": registry.SILENT}, "not answering"),
        ({"supervisor": registry.ABANDONED}, "abandoned"),
    ):
        drawn = sessions.card(record(**changes), DEVICES)
        assert drawn.text.startswith(f"✗ Session 4f2a: {said}, ")
        assert '<div class="pw-card pw-fail"' in drawn.html
        assert "Other slices work" not in drawn.text
        assert f'<span class="pw-tone pw-fail">{said}' in sessions.table([record(**changes)]).html
    silent = sessions.card(record(supervisor=registry.SILENT), DEVICES)
    assert "was connected since" in silent.text
    assert "kill -CONT 7" in silent.text
    assert "pw-ok" not in silent.html.partition("</style>")[2]
    assert str(record(supervisor=registry.SILENT)).startswith("Session 4f2a: not answering, was connected since")


def test_the_sidebar_has_a_sessions_words_and_what_is_left_of_it():
    three = (SessionSlice(3, 0, up=True), SessionSlice(1, 1, up=False), SessionSlice(0, 2, up=False))
    degraded = record(**{**DEGRADED, "instances": {"tpuv6e:2x2": 3}, "slices": three})
    assert (sessions.state_words(degraded), sessions.tone_of(degraded)) == ("degraded, 1 of 3 slices", Tone.WARN)
    assert dict(sessions.facts(degraded))["Devices"] == "4 of 12"
    assert sessions.state_advice(degraded, NOW).startswith("Slice 1, slice 0 (your 2) are down. Their arrays are lost;")
    useless = dataclasses.replace(degraded, slices=three[1:2])
    assert sessions.tone_of(useless) is Tone.FAIL
    assert dict(sessions.facts(useless))["Devices"] == "0 of 12"
    assert sessions.state_advice(useless, NOW).startswith("Slice 1 is down. All arrays on TPUs are lost.")
    # What comes by itself is more urgent than what has happened.
    assert "suspends at" in sessions.state_advice(dataclasses.replace(degraded, suspends_at=NOW + 60), NOW)
    unused = record(unused_since=NOW - 60, instances={"tpuv6e:2x2": 3})
    assert "It holds 3 slices; “Suspend” frees them" in worded(sessions.state_advice(unused, NOW), Face.SIDEBAR)
    for changes in ({"state": SessionState.WAITING, "slices": ()}, {"supervisor": registry.SILENT}):
        assert "Devices" not in dict(sessions.facts(record(**changes)))
    assert sessions.state_advice(record(supervisor=registry.ABANDONED), NOW).startswith("Its supervisor has ended.")


def test_a_session_says_how_far_its_arrays_are():
    saved = SuspendedArrays(3, 4_000_000_000, "gs://b/saved/u/suspended-s", NOW)

    def words(**changes):
        return sessions.state_words(record(slices=(), **changes))

    suspending = words(state=SessionState.SUSPENDING, transfer=Transfer(1_200_000_000, 4_000_000_000, 12.3))
    assert suspending == "suspending, 1.2 GB of 4.0 GB, about 12 s left"
    assert words(state=SessionState.RESUMING, saved=saved, transfer=Transfer(0, 10)) == "resuming, 0 bytes of 10 bytes"
    # The first part of it is a new proxy.
    assert words(state=SessionState.STARTING, saved=saved) == "resuming"
    assert words(state=SessionState.SUSPENDED, saved=saved) == "suspended, arrays are saved"
    suspended = record(state=SessionState.SUSPENDED, slices=(), saved=saved)
    assert dict(sessions.facts(suspended))["Saved"] == "3 arrays (4.0 GB) in gs://b/saved/u/suspended-s"
    # The words of the sidebar, where this is a button.
    assert worded(sessions.state_advice(suspended, NOW), Face.SIDEBAR).endswith("freed. “Resume” continues.")
    # With its supervisor, for example.
    lost = dataclasses.replace(suspended, state=SessionState.LOST)
    assert worded(sessions.state_advice(lost, NOW), Face.NOTEBOOK).endswith("saved. %pathways resume brings them back.")


def test_a_slice_has_the_services_number_and_jaxs_index_beside_it_where_they_differ():
    held = {"instances": {"tpuv6e:2x2": 1}, "slices": (SessionSlice(1, 0, up=True),)}
    drawn = sessions.card(record(**held), {0: DEVICES[0]})
    assert "4 (slice 1 (your 0): 4 × TPU v6 lite)" in drawn.text
    assert "slice 1, tpuv6e:2x2, this notebook, your 0" in drawn.html


def test_an_age_is_that_of_the_state_and_not_of_the_session():
    lost = record(state=SessionState.LOST, created=NOW - 560, state_since=NOW - 15, slices=())
    assert f"lost, since {text.moment(NOW - 15)}" in sessions.card(lost, DEVICES).text
    assert re.search(r"lost +15 s .*9 min 20 s", sessions.table([lost]).text)


def test_a_lost_session_says_how_to_go_on_and_shows_no_devices():
    drawn = sessions.card(record(state=SessionState.LOST, slices=()), DEVICES)
    assert "%pathways reconnect" in drawn.text
    assert "devices" not in drawn.text
    assert 'class="pw-map"' not in drawn.html


def test_slices_name_three_owners_and_who_waits():
    other = Holder("9c1e", "ada", "work/eval.ipynb", NOW - 50, {"tpuv6e:4x4": 1}, False, 1, "job-ada2", "pod-ada2")
    stranger = Holder("77aa", "eve", "", NOW - 40, {"tpuv6e:4x4": 1}, False, 1, "job-eve", "pod-eve")
    whole = service(count=4)
    first, down, *rest = whole.slices
    held = (first, down, dataclasses.replace(rest[0], held_by=other), dataclasses.replace(rest[1], held_by=stranger))
    shown = dataclasses.replace(whole, slices=held)
    drawn = slices.view([shown], viewer=slices.Viewer("4f2a", "ada"))
    for owner in ("this notebook", "in use by my other notebook eval.ipynb", "in use by eve (session 77aa)"):
        assert owner in drawn.text
        assert owner in drawn.html
    rows = [re.split(r" {2,}", line.strip())[1:3] for line in drawn.text.splitlines()[3:7]]
    assert [number for number, _ in rows] == ["0 ★", "1", "2 ☆", "3 ☆"]
    assert "3/4 (CrashLoopBackOff)" in drawn.text
    assert "slice 0, tpuv6e:4x4, this notebook, 1 min" in drawn.html
    assert "slice 1, tpuv6e:4x4, down, CrashLoopBackOff" in drawn.html
    waits = slices.view([whole], viewer=slices.Viewer("4f2a", "ada"))
    assert re.search(r"eve.* waits for 2 slices, 1 min 20 s", waits.text)


def test_slices_say_which_one_this_notebook_lost_and_are_not_green_then():
    whole = service()
    first, down, last = whole.slices
    lost = dataclasses.replace(whole, slices=(first, dataclasses.replace(down, held_by=first.held_by), last))
    drawn = slices.view([lost], viewer=slices.Viewer("4f2a", "ada"))
    assert re.search(r"✗ +1 ★ +down, this notebook \(lost, waiting for it\)", drawn.text)
    waits = "down, this notebook (lost, waiting for it) · 1 min 00 s · CrashLoopBackOff"
    assert f"slice 1, tpuv6e:4x4, {waits}" in drawn.html
    assert "3 slices of tpuv6e:4x4, 2 ready, 1 free" in drawn.text
    assert "3/4 (CrashLoopBackOff)" in drawn.text
    assert '<div class="pw-slice pw-fail pw-of-this pw-free"' in drawn.html


def test_a_slice_looks_the_same_in_a_sessions_card_and_among_the_services_slices():
    def box(drawn):
        return re.search(r'<div class="(pw-slice[^"]*)"[^>]*><div>(.*?)<span', drawn.html).groups()

    viewer = slices.Viewer("4f2a", "ada")
    assert box(slices.view([service()], viewer=viewer)) == box(sessions.card(record(), DEVICES))


def test_a_service_without_a_ready_slice_is_not_green_and_none_of_its_slices_is_free():
    pending = (SliceHost(0, State.STARTING, "w", reason="Unschedulable"),)
    unusable = tuple(Slice(index, State.STARTING, pending, f"w{index}") for index in range(500))
    drawn = slices.view([service(slices=unusable, holders=())])
    assert "0 of 500 slices ready (Unschedulable)" in drawn.text
    assert '<div class="pw-card pw-wait"' in drawn.html
    assert re.search(r"… +0 +starting +0/1 \(Unschedulable\)", drawn.text)
    assert "free" not in drawn.text


def test_a_kind_of_slice_that_is_not_known_is_shown_in_words():
    assert "tpuv99:2x2" in slices.view([service(instance_type="tpuv99:2x2")]).html


def test_a_thousand_slices_of_a_hundred_hosts_stay_a_small_picture():
    html = slices.view([service(count=1000, hosts=64, instance_type="tpuv6e:16x16")]).html
    assert "and 872 more slices" in html
    assert len(html) < 2_000_000


def test_progress_names_the_stage_that_waits_and_why():
    drawn = progress.Progress(NOW - 10)
    for ago, stage, message in [(10, Stage.DISCOVER, "Looking."), (8, Stage.START, "No node has room.")]:
        drawn.add(Event(EventKind.STAGE, message, NOW - ago, {"stage": stage}))
    assert drawn.view(NOW).text.splitlines() == [
        "✓ find free slices of the service (2.0 s)",
        "… start the proxy pod (8.0 s): No node has room.",
        f"As of {text.moment(NOW)}. If this no longer changes, %pathways status shows what became of it.",
    ]
    assert "As of" not in drawn.view(NOW, "failed").text
    assert "Not connected" in drawn.view(NOW, "failed").html


def test_progress_names_no_tunnel_where_there_is_none():
    drawn = progress.Progress(NOW - 10)
    about = {"stage": "tunnel", "done": True, "direct": "unix:/proxy"}
    drawn.add(Event(EventKind.STAGE, "No tunnel: direct, through a unix socket.", NOW - 2, about))
    shown = drawn.view(NOW, done=True).text
    assert "✓ reach the proxy without a tunnel" in shown
    assert "open the tunnel" not in shown


def test_progress_of_something_else_has_its_own_headline():
    drawn = progress.Progress(NOW - 5, titles=progress.Titles("Suspending", "Not suspended", "Suspended"))
    drawn.enter("write the arrays", "1.2 GB of 4.0 GB, about 12 s left", at=NOW - 3)
    assert "… write the arrays (3.0 s): 1.2 GB of 4.0 GB, about 12 s left" in drawn.view(NOW).text
    assert "Suspending" in drawn.view(NOW).html
    assert "Not suspended" in drawn.view(NOW, "interrupted").html
    assert drawn.done_line(NOW).startswith("✓ suspended (5.0 s)")


def test_the_doctors_verdict_is_that_of_the_worst_finding():
    fine = Finding("ok", Tone.OK, "found")
    odd, bad = (Finding(level, level, "found", "do this") for level in (Tone.WARN, Tone.FAIL))
    assert checks.findings([fine], Face.NOTEBOOK).text.endswith("✓ All is well.")
    assert "Connecting works" in checks.findings([fine, odd], Face.NOTEBOOK).text
    assert checks.findings([fine, odd, bad], Face.NOTEBOOK).text.endswith(
        "✗ 1 problem keeps this machine from connecting."
    )


def test_a_session_resumed_on_fewer_slices_shows_no_slice_of_its_former_proxy():
    one = record(instances={"tpuv6e:2x2": 1}, slices=(SessionSlice(0, 0, up=True),))
    drawn = sessions.card(one, DEVICES)
    assert "4 (slice 0: 4 × TPU v6 lite)" in drawn.text
    assert "slice 1" not in drawn.html


def test_where_arrays_are_saved_is_shown_until_they_are_back():
    saved = SuspendedArrays(2, 132, "gs://bucket/saved/ada/suspended-4f2a", NOW - 5)
    suspended = sessions.card(record(state=SessionState.SUSPENDED, slices=(), saved=saved), {})
    assert "2 arrays (132 bytes) in gs://bucket/saved/ada/suspended-4f2a" in suspended.text
    # Its slices are free, and its proxy is removed.
    assert "none; 2 slices of tpuv6e:2x2 (8 chips) before" in suspended.text
    assert "proxy" not in suspended.text
    assert "gs://" not in sessions.card(record(saved=saved), {}).text
    moved = Transfer(500_000_000, 1_200_000_000, 12.0)
    resuming = sessions.card(record(state=SessionState.RESUMING, saved=saved, transfer=moved), {})
    assert "resuming, 500.0 MB of 1.2 GB, about 12 s left" in resuming.text
    assert "gs://bucket" in resuming.text
    assert "resuming" in sessions.table([record(state=SessionState.STARTING, saved=saved)]).text
    assert "✓" not in resuming.text


def test_a_closed_session_stays_on_record_without_a_map_of_slices():
    happened = [Event(EventKind.STATE, "Connected.", NOW - 180, {"state": SessionState.CONNECTED})]
    closed = record(state=SessionState.CLOSED, state_since=NOW - 10, slices=(), pod="proxy-ada")
    drawn = sessions.card(closed, DEVICES, happened)
    lasted = f"from {text.moment(NOW - 180)} to {text.later(NOW - 10, NOW - 180)}"
    assert f"closed, was connected {lasted}" in drawn.text
    assert "8 × TPU v6 lite" in drawn.text
    assert "proxy-ada" in drawn.text
    assert "2 slices of tpuv6e:2x2" in drawn.text
    assert 'class="pw-map"' not in drawn.html


def test_a_session_is_listed_with_its_services_name_or_else_its_address():
    assert " pathways-cluster " in sessions.table([record()]).text
    assert " 10.0.0.7:29001 " in sessions.table([record(service="10.0.0.7:29001")]).text


def test_pictures_that_are_kept_in_a_file_say_when_they_were_true():
    moment = f"As of {text.moment(NOW)}"
    for drawn in (
        sessions.table([record()]),
        sessions.table([]),
        events.view([DOWN]),
    ):
        assert moment in drawn.html
    assert f"{moment}. The session has ended." in slices.view([service()], note="The session has ended.").html


def test_a_notice_is_a_small_part_of_the_notebooks_file():
    news = [events.News(parts.Tone.FAIL, "Slice 1 is down.", "Arrays on it are lost.")]
    assert len(events.notice(news).html) < 2_000


def test_a_job_that_runs_in_a_file_does_so_as_of_a_time():
    shown = jobs.details(JobDetails(FAILED, (), (), ()), note="No longer live.")
    (first,) = re.findall("<div>.*?</div>", shown.html)[:1]
    assert first.endswith(f'<span class="pw-muted">as of {text.moment(NOW)}</span></div>')
    assert shown.text.splitlines()[-1] == "No longer live."


def test_a_job_that_cannot_be_read_any_more_is_shown_as_of_then_and_not_of_now():
    shown = jobs.details(JobDetails(FAILED, (), (), (), outdated="As it was at 10:00:00. The server is away."))
    for each in (shown.text, shown.html):
        assert "As it was at 10:00:00. The server is away." in each
        assert "as of " not in each


def test_only_the_state_of_a_job_is_kept_on_one_line():
    shown = jobs.details(JobDetails(FAILED, (), (), ())).html
    assert '<span class="pw-tone pw-fail">failed</span> (ValueError: ' in shown


def test_the_many_arrays_of_one_variable_are_shown_together():
    lost = [NamedArray(f"losses[{index}]", (), "float32", 4) for index in range(100)]
    lost += [NamedArray("w['in']", (8, 2), "float32", 64), NamedArray("w['out']", (2, 1), "float32", 8)]
    (line,) = arrays.switched(lost, ())
    assert line == ("102 arrays became unusable: losses (100 arrays), w['in']: float32[8,2], w['out']: float32[2,1]")


def test_slices_of_a_silent_session_are_reclaimable_in_words_and_shape():
    silent = Reclaimable(NOW - 300, NOW + 600)
    holder = Holder("4f2a", "ada", "work/train.ipynb", NOW - 900, {"tpuv6e:2x2": 1}, False, 1, "j", "p", silent)
    ready = (SliceHost(0, State.READY, "w-0"),)
    both = (Slice(0, State.READY, ready, "w0", holder), Slice(1, State.READY, ready, "w1"))
    drawn = slices.view([service(instance_type="tpuv6e:2x2", slices=both, holders=(holder,))])
    assert "2 slices of tpuv6e:2x2, 1 free, 1 reclaimable" in drawn.text
    assert re.search(r"0 ☆ +reclaimable, ada \(train.ipynb\), silent for 5 min 00 s", drawn.text)
    assert "its slices are kept until someone needs them" in drawn.text
    assert "reclaimable, ada (train.ipynb), silent for 5 min 00 s" in drawn.html
    assert drawn.html.count('pw-kept"') == 1
    assert dataclasses.asdict(drawn.value[0])["slices"][0]["held_by"]["reclaimable"]["silent_since"] == NOW - 300
    blind = service(instance_type="tpuv6e:2x2", slices=both[1:], holders=(holder,), certain=False)
    assert (blind.free, blind.reclaimable) == (0, 1)
    assert "holds 1 slice, 15 min 00 s, reclaimable, silent for 5 min 00 s" in slices.view([blind]).text
