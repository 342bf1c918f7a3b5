"""A session of this very process, on the embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import queue
import re
import signal
import subprocess
import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
import scripts

from benchmarks.link import Link
from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import CapacityError, ServiceError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.service.names import JOB_INDEX_LABEL, REPLICATED_JOB_LABEL
from pathways_jupyter.session import client, protocol, registry
from pathways_jupyter.session.kernel import device_puts, jax_switch, kernel_side, session
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


def kubectl(cluster, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE).stdout


def until(made: session.Session, state: SessionState, since: int) -> list[EventKind]:
    kinds = []
    for event in made.follow(since):
        kinds.append(event.kind)
        if event.data.get("state") == state:
            return kinds
    raise AssertionError(f"the session never was {state}")


async def event_with(record: registry.SessionRecord, word: str) -> None:
    async with asyncio.timeout(DEADLINE):
        async for event in client.follow(record):
            if word in event.message:
                return


def test_connecting_reports_each_stage_and_gives_devices_by_slice_and_disconnecting_takes_them_away(config, has, gone):
    import jax

    before = jax.devices()
    connecting = session.attempt_connect(config())
    events = list(connecting)
    stages = [event.data["stage"] for event in events if event.kind is EventKind.STAGE]
    assert list(dict.fromkeys(stages))[:3] == ["discover", "create", "start"]
    assert {"place", "tunnel", "jax"} <= set(stages)
    assert not [event.message for event in events if event.kind is EventKind.WARNING]
    assert all("elapsed" in event.data for event in events if event.kind is EventKind.STAGE)
    made = connecting.session
    assert session.current() is made
    assert made.state is SessionState.CONNECTED
    assert {index: len(devices) for index, devices in made.slices().items()} == {0: 4, 1: 4}
    assert jax.devices() == list(made.devices())
    assert jax.numpy.arange(8.0).sum() == 28
    has(made.id, {"jobs": 1, "leases": 1, "pods": 1, "processes": 2, "sockets": 2, "files": 2})
    record = registry.read(made.id)
    assert (record.state, record.kernel_pid, record.instances) == ("connected", os.getpid(), {TYPE: 2})
    status = made.status()
    assert status.sent > record.sent, "the tunnel has carried the sum since the record was written"
    assert status.round_trip > 0, "what is written changes only with the state"
    assert replace(status, sent=record.sent, received=record.received, round_trip=record.round_trip) == record
    ended = made.disconnect()
    assert ended.left == ""
    assert made.state is SessionState.CLOSED
    assert session.current() is None
    assert jax.devices() == before
    gone(made.id)


@pytest.mark.thorough
def test_a_block_disconnects_at_its_end_also_when_it_fails(config, gone):
    with pytest.raises(ZeroDivisionError), session.connect(config(1)) as made:
        _ = 1 / 0
    assert session.current() is None
    gone(made.id)


@pytest.mark.thorough
def test_a_block_warns_of_what_it_could_not_remove(config, gone, monkeypatch):
    with monkeypatch.context() as patch:
        made = session.connect(config(1))
        finish = kernel_side.finish
        patch.setattr(kernel_side, "finish", lambda link: finish(link) or "The proxy is still there.")
        with pytest.warns(UserWarning, match=f"of session {made.id} could be removed: The proxy is still there"), made:
            pass
    gone(made.id)


@pytest.mark.thorough
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_disconnect_that_ends_before_it_has_asked_the_supervisor_leaves_nothing(config, gone, monkeypatch, error):
    made = session.connect(config(1, linger=DEADLINE))
    deactivate, errors = jax_switch.JaxSwitch.deactivate, [error]

    def failing(self, namespace=None):
        if errors:
            raise errors.pop()
        return deactivate(self, namespace)

    monkeypatch.setattr(jax_switch.JaxSwitch, "deactivate", failing)
    with pytest.raises(error):
        made.disconnect()
    assert session.current() is None
    gone(made.id)


def test_a_session_with_a_slice_down_is_degraded_until_it_has_healed(connected, cluster):
    since, before = connected.event_count, connected.status()
    assert [(each.number, each.index, each.up) for each in before.slices] == [(0, 0, True), (1, 1, True)]
    assert before.state_since >= before.created
    kubectl(cluster, "delete", "pod", "--wait=false", "-l", f"{JOB_INDEX_LABEL}=1,{REPLICATED_JOB_LABEL}=worker")
    assert EventKind.SLICE_DOWN in until(connected, SessionState.DEGRADED, since)
    degraded = connected.status()
    # It may have healed by now; what the events say is what was.
    down = next(event for event in connected.events(since) if event.kind is EventKind.SLICE_DOWN)
    assert (down.message, down.data["slice"], down.data["number"]) == ("Slice 1 is down.", 1, 1)
    judged = next(event for event in connected.events(since) if event.data.get("state") == SessionState.DEGRADED)
    assert "1 of 2 slices" in judged.message
    assert degraded.state_since >= judged.at
    assert EventKind.SLICE_HEALED in until(connected, SessionState.CONNECTED, since)
    healed = connected.status()
    assert healed.state is connected.state is SessionState.CONNECTED
    assert [each.up for each in healed.slices] == [True, True]
    assert healed.state_since > judged.at
    assert connected.record.slices == healed.slices


@pytest.mark.thorough
def test_a_session_goes_on_and_reconnects_and_disconnects_while_it_is_degraded(config, cluster, gone):
    import jax

    with session.connect(config(2)) as made:
        since = made.event_count
        kubectl(cluster, "cordon", "-l", "cloud.google.com/gke-tpu-topology")
        try:
            kubectl(
                cluster, "delete", "pod", "--wait=false", "-l", f"{JOB_INDEX_LABEL}=0,{REPLICATED_JOB_LABEL}=worker"
            )
            until(made, SessionState.DEGRADED, since)
            assert made.status().state is made.state is SessionState.DEGRADED
            assert made.settle() is None
            assert jax.device_put(1.0, made.slices()[1][0]) + 1 == 2
        finally:
            kubectl(cluster, "uncordon", "-l", "cloud.google.com/gke-tpu-topology")
        made.reconnect()
        assert made.state.is_connected
    gone(made.id)


@pytest.mark.thorough
def test_a_slice_is_called_what_the_service_calls_it(config, hold):
    hold(1)
    with session.connect(config(1)) as made:
        (held,) = made.status().slices
        assert (held.number, held.index) == (1, 0)
        (event,) = [event for event in made.events() if event.kind is EventKind.SLICE_PLACED]
        assert (event.data["slice"], event.data["number"]) == (0, 1)
        assert event.message.startswith("Slice 1 (your 0) is placed")


def test_a_proxy_that_is_lost_before_jax_has_connected_is_reported_at_once(config, cluster, gone):
    connecting = session.attempt_connect(config(1))
    events = iter(connecting)
    while next(events).data.get("state") != SessionState.CONNECTED:
        pass
    pod = registry.read(connecting._link.session).pod
    kubectl(cluster, "delete", "pod", pod, "--wait=false")
    # A proxy that is being deleted still serves for a moment, so JAX could connect before the loss is known here.
    assert any(event.data.get("state") == SessionState.LOST for event in connecting._link.watch())
    with pytest.raises(SessionError, match=r"lost|could not connect"):
        list(events)
    gone(connecting._link.session)
    assert session.current() is None


@pytest.mark.thorough
def test_anyone_learns_what_arrays_a_session_has_also_while_its_kernel_computes(connected):
    held = [jnp.arange(8.0), jax.device_put(np.ones((1000, 1000), np.float32), connected.devices()[-1])]
    # Of another client, which outlives the session.
    elsewhere = jax.device_put(np.ones(3), jax.devices("cpu")[0])
    assert client.request(connected.record, Method.ARRAYS) == {"count": 2, "bytes": 4_000_032}
    held.pop().delete()
    assert client.request(connected.record, Method.ARRAYS) == {"count": 1, "bytes": 32}
    connected.reconnect({})
    assert client.request(connected.record, Method.ARRAYS) == {"count": 0, "bytes": 0}
    assert float(elsewhere.sum()) == 3


def test_an_array_counts_once_while_its_layout_is_asked_for(connected, monkeypatch):
    asked, answered = threading.Event(), threading.Event()

    def ask_each(questions):
        # As the thread does on a connection that takes its time.
        question = questions.get()
        asked.set()
        answered.wait(DEADLINE)
        del question

    device_puts.ask_layouts(None)
    monkeypatch.setattr(device_puts, "_ask_each", ask_each)
    device_puts.ask_layouts(connected.devices()[0].client)
    try:
        put = jax.device_put(np.ones((1000, 3), np.float32), connected.devices()[-1])
        assert asked.wait(DEADLINE)
        assert connected.count_arrays() == {"count": 1, "bytes": put.nbytes}
        # Of these JAX makes no second array.
        sharding = jax.sharding.SingleDeviceSharding(connected.devices()[0])
        made = jax.make_array_from_callback((5, 7), sharding, lambda index: np.ones((5, 7), np.float32))
        assert connected.count_arrays() == {"count": 2, "bytes": put.nbytes + made.nbytes}
    finally:
        answered.set()
        monkeypatch.undo()
        device_puts.ask_layouts(connected.devices()[0].client)


def test_an_array_that_is_deleted_before_its_layout_is_asked_for_ends_no_process(connected):
    questions, known = queue.SimpleQueue(), {"layout"}
    array = jax.device_put(np.ones((1000, 5), np.float32), connected.devices()[-1]).block_until_ready()
    array.delete()
    questions.put((array, known, "layout"))
    questions.put(None)
    device_puts._ask_each(questions)
    assert connected.state is SessionState.CONNECTED


def test_a_session_that_is_over_cannot_be_reconnected_and_says_so(config, gone):
    with session.connect(config(1)) as made:
        pass
    with pytest.raises(SessionError, match=f"Session {made.id} has ended"):
        made.reconnect()
    assert made.disconnect() == session.Ended()
    assert made.status().state is made.state is SessionState.CLOSED
    assert (made.slices(), made.devices()) == ({}, ())
    assert made.events()[-1].data["state"] == SessionState.CLOSED
    assert session.current() is None
    gone(made.id)


def test_a_status_is_read_by_people_too(connected):
    lines = str(connected.status()).splitlines()
    assert re.fullmatch(rf"Session {connected.id}: connected since \d\d:\d\d:\d\d", lines[0])
    assert {line.split()[0] for line in lines[1:]} >= {"service", "tpu", "proxy", "cluster", "namespace"}
    assert f"{TYPE}=2" in "".join(lines)
    assert len(lines) < 10


@pytest.mark.thorough
def test_an_api_server_that_restarts_costs_the_connection_and_nothing_else(connected, cluster, gone):
    import jax

    jax.numpy.ones(4).block_until_ready()
    since = connected.event_count
    cluster.restart_api()
    until(connected, SessionState.LOST, since)
    lost = next(event.message for event in connected.events(since) if event.kind is EventKind.PROXY_LOST)
    assert not re.search("lease|silent", lost), "nothing stood still"
    waits = connected.config.wait
    connected.reconnect(tpu={TYPE: 1}, wait=waits + 30)
    assert connected.state is SessionState.CONNECTED
    assert (len(connected.slices()), connected.config.wait) == (1, waits), "only this once"
    assert jax.numpy.ones(4).sum() == 4
    connected.disconnect()
    gone(connected.id)


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["cut", "freeze"])
def test_a_status_after_a_call_that_failed_does_not_say_connected(config, cluster, tmp_path, what):
    import jax

    with (
        Link(cluster.kubeconfig) as link,
        session.connect(config(1, kubeconfig=str(link.write(tmp_path / "kubeconfig")), relay=False)) as made,
    ):
        getattr(link, what)()
        with pytest.raises(jax.errors.JaxRuntimeError):
            (jax.numpy.ones(4) + 1).block_until_ready()
        # The supervisor asks the cluster, which cannot be reached, why the tunnel has broken.
        assert made.status().state is SessionState.LOST
        link.thaw()
        link.reset()
        link.open()


@pytest.mark.thorough
def test_what_the_sidebar_disconnects_is_put_back_between_cells(config, gone):
    import jax

    before = jax.devices()
    made = session.connect(config(1))
    variables = {"x": jax.numpy.ones(3)}
    assert made.settle(variables) is None
    assert client.request(made.record, Method.DISCONNECT, patience=DEADLINE) == {"left": ""}
    until(made, SessionState.CLOSED, 0)
    assert [each.name for each in made.settle(variables).unusable] == ["x"]
    assert session.current() is None
    assert jax.devices() == before
    gone(made.id)


@pytest.mark.thorough
def test_jax_is_put_back_also_where_the_sidebars_disconnect_cannot_remove_the_proxy(config, cluster, tmp_path, gone):
    before = jax.devices()
    with Link(cluster.kubeconfig) as link:
        made = session.connect(config(1, kubeconfig=str(link.write(tmp_path / "kubeconfig"))))
        link.cut()
        with pytest.raises(SessionError, match="did not answer disconnect"):
            client.request(made.record, Method.DISCONNECT, patience=0.5)
        until(made, SessionState.CLOSING, 0)
        assert made.settle({}) is not None
        assert session.current() is None
        assert jax.devices() == before
        link.open()
        gone(made.id)


@pytest.mark.thorough
def test_an_attempt_to_reconnect_that_is_not_iterated_asks_for_nothing(connected):
    connected.attempt_reconnect()
    assert connected.status().generation == 1


@pytest.mark.thorough
def test_what_the_sidebar_reconnects_is_taken_between_cells(connected):
    import jax

    since = connected.event_count
    client.request(connected.record, Method.RECONNECT, patience=DEADLINE)
    variables = {"x": jax.device_put(1.0, jax.devices("cpu")[0])}
    # From before the request: the event may be here by the time of its answer.
    assert any(connected._side.link.generation == 2 for _ in connected.follow(since))
    assert connected.settle(variables).unusable == ()
    assert jax.numpy.ones(4).sum() == 4
    assert connected.settle() is None


@pytest.mark.thorough
def test_while_the_sidebar_replaces_a_proxy_its_devices_take_nothing_and_its_arrays_are_deleted(connected):
    """The cell that runs meanwhile would abort the kernel with what it puts there, and the next one too."""
    variables = {"x": jnp.ones(3)}
    connecting = Event(EventKind.STATE, "Connecting again.", data={"state": SessionState.STARTING})
    connected._side.link._take(connecting)
    with pytest.raises(jax.errors.JaxRuntimeError, match="belongs to a proxy that is gone"):
        jax.device_put(np.ones(3), connected.devices()[0])
    assert [each.name for each in connected.settle(variables).unusable] == ["x"]
    assert variables["x"].is_deleted()
    assert connected.settle(variables) is None
    connected.reconnect()
    assert float(jnp.ones(4).sum()) == 4


@pytest.mark.thorough
def test_slices_that_are_taken_are_named_with_who_holds_them(config, hold, gone):
    hold(1)
    connecting = session.attempt_connect(config(2))
    with pytest.raises(CapacityError, match=r"1 of 2 slices .* \(holder\.ipynb\) holds 1") as refused:
        list(connecting)
    assert "--wait" in refused.value.hint
    gone(connecting._link.session)
    messages = [event.message for event in connecting._link.events()]
    assert messages[-2:] == ["Ending the session; it has no proxy.", "The session has ended."]
    assert session.current() is None


@pytest.mark.thorough
def test_an_interrupt_between_two_events_cancels_the_attempt_though_its_traceback_is_kept(config, hold, gone):
    hold(1)
    connecting = session.attempt_connect(config(2, wait=DEADLINE))

    def connect() -> None:
        with connecting:
            for event in connecting:
                if event.data.get("state") == SessionState.WAITING:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect()
    gone(connecting._link.session)
    assert session.current() is None


def test_an_interrupt_that_comes_just_before_the_attempt_ends_it_before_anything_is_asked_for(config):
    events = []

    @interrupts.defer_sigint()
    def magic() -> None:
        connecting = session.attempt_connect(config())
        signal.raise_signal(signal.SIGINT)
        with connecting:
            events.extend(connecting)

    with pytest.raises(KeyboardInterrupt):
        magic()
    assert events == []
    assert session.current() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"namespace": "elsewhere"}, "There is no namespace elsewhere in cluster"),
        ({"proxy_image": "example.com/proxy_server:none"}, "its image cannot be pulled"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_leaves_nothing(config, gone, changes, message):
    connecting = session.attempt_connect(config(**changes))
    with pytest.raises(Exception, match=message):
        list(connecting)
    gone(connecting._link.session)


def test_a_proxy_that_ends_while_starting_is_an_error_and_not_a_timeout(config, gone):
    connecting = session.attempt_connect(config(1, proxy_options=("--num_elastic_slices=many",)))
    with pytest.raises(ServiceError, match=r"exit code 2.*Its log says: .*num_elastic_slices"):
        list(connecting)
    gone(connecting._link.session)


def test_leaving_the_iteration_early_cancels(config, gone):
    connecting = session.attempt_connect(config())
    for event in connecting:
        if event.kind is EventKind.STAGE and event.data["stage"] == "create":
            break
    connecting.cancel()
    gone(connecting._link.session)
    assert session.current() is None
    with pytest.raises(SessionError, match="cancelled"):
        _ = connecting.session


def test_a_connection_that_is_not_waited_for_is_given_up(config, gone):
    connecting = session.attempt_connect(config(1))
    next(iter(connecting))
    name = connecting._link.session
    del connecting
    gc.collect()
    gone(name)


_DIES = """
import os, signal, time
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session

me, os.getpid = os.getpid(), lambda: 0
made = session.connect({config})
if not (child := os.fork()):
    # So that only the connection may be waited for.
    os.close(1)
    os.close(2)
    time.sleep({seconds})
    os._exit(0)
print(made.id, child, flush=True)
os.kill(me, signal.SIGKILL)
"""


def test_a_child_of_a_kernel_that_is_killed_does_not_keep_its_session_alive(config, gone):
    """A system that can watch no process, and a child with each descriptor of the kernel."""
    killed = scripts.run(_DIES.format(config=config(1), seconds=2 * DEADLINE))
    made, child = killed.stdout.split()
    try:
        gone(made)
        assert psutil.pid_exists(int(child))
    finally:
        os.kill(int(child), signal.SIGKILL)


@pytest.mark.thorough
def test_a_session_that_has_lost_its_proxy_while_it_lingered_gets_a_new_one(config, cluster, monkeypatch, gone):
    monkeypatch.setenv("JPY_SESSION_NAME", "work/lost.ipynb")
    settings = config(1, linger=DEADLINE)
    first = session.connect(settings)
    first._side.forget({})
    first._side.link.close()
    asyncio.run(event_with(first.record, "lingers"))
    kubectl(cluster, "delete", "pod", first.record.pod, "--wait=false")
    asyncio.run(event_with(first.record, "Its arrays are lost"))
    session._current = None
    second = session.connect(settings)
    assert (second.id, second.record.generation) == (first.id, 2)
    assert float(jnp.ones(3).sum()) == 3
    second.disconnect()
    gone(second.id)


@pytest.mark.timeout(400)
@pytest.mark.soak
def test_connections_in_one_process_leave_no_thread_descriptor_or_child(config):
    import jax

    me = psutil.Process()

    def once() -> tuple[int, int, int]:
        with session.connect(config(1)) as made:
            # Through the tunnel and back, without a compiler in between.
            assert float(jax.device_put(2.0, made.devices()[0])) == 2.0
        gc.collect()
        return me.num_threads(), me.num_fds(), len(me.children())

    counts = [once() for _ in range(30)]
    # The first few still start threads that JAX keeps for good, and a connection's last thread may end a moment later.
    early, late = counts[5:8], counts[-3:]
    for before, after in zip(zip(*early, strict=True), zip(*late, strict=True), strict=True):
        assert min(after) <= max(before)


@pytest.mark.thorough
def test_a_record_of_a_dead_session_is_swept_by_the_next_connect(config, hold, gone):
    dead = hold(2)
    dead._orphaned = None
    record = registry.read(dead.session)
    os.kill(record.pid, signal.SIGKILL)
    with contextlib.suppress(SessionError):
        dead.answer(dead.ask(Method.STATUS), patience=DEADLINE)
    with session.connect(config(2)) as made:
        assert len(made.devices()) == 8
    gone(dead.session)
    assert protocol.config_from_json(record.config).instances == {TYPE: 2}
