"""A notebook's display of its session stays true: others act on it, and its kernel or supervisor may be gone."""

import contextlib
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from session_records import bare_record
from waits import frozen, wait_until

from pathways_jupyter.render import text
from pathways_jupyter.session import client
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from tests.conftest import Notebook
from tests.magics.test_notebook import DELETE_THE_PROXY, KILL_A_WORKER, sessions

SLICES = "--local --tpu tpuv6e:2x2=2"


@pytest.fixture
def connected(cleared_notebook, cluster):
    cleared_notebook.connect(SLICES)
    return cleared_notebook


def record(machine):
    (only,) = sessions(machine)
    return SessionRecord.from_json(only)


def drawn(notebook):
    """The card, and the notices below it, as they are now."""
    card, *notices = [each["data"]["text/plain"] for each in notebook.displays.values()]
    return card, notices


@pytest.mark.thorough
def test_a_reconnect_from_the_sidebar_is_drawn_on_the_card_and_ends_the_notice_of_the_loss(connected, machine):
    before = record(machine)
    connected.run(DELETE_THE_PROXY)
    connected.wait_for("All arrays on TPUs are lost")
    seen = len(connected.seen)
    client.request(before, Method.RECONNECT, patience=60)
    connected.wait_for("A new proxy is connected since", since=seen)
    connected.wait_for("connected, since", since=seen)
    after = record(machine)
    assert after.pod != before.pod
    card, (notice,) = drawn(connected)
    assert after.pod in card
    assert before.pod not in card
    assert "%pathways reconnect" not in notice
    assert "✗" not in notice


@pytest.mark.thorough
def test_status_lists_no_news_of_a_proxy_that_was_replaced(connected):
    connected.run("%pathways elastic inject slice-down 1")
    connected.wait_for("Slice 1 is down.")
    assert "Slice 1 is down." in connected.run("%pathways status").text
    assert connected.run("%pathways suspend --yes").status == "ok"
    assert "is down" not in connected.run("%pathways status").text
    assert connected.run("%pathways resume --wait 60").status == "ok"
    resumed = connected.run("%pathways status").text
    assert "8 (slice 0:" in resumed
    assert "is down" not in resumed
    seen = len(connected.seen)
    connected.run("%pathways elastic inject slice-down 1")
    connected.wait_for("Slice 1 is down.", since=seen)
    # Its worker may not be back yet.
    assert connected.run("%pathways reconnect --yes --wait 60").status == "ok"
    assert "is down" not in connected.run("%pathways status").text


def test_a_notice_of_a_loss_gives_no_advice_after_the_session(connected):
    connected.run(DELETE_THE_PROXY)
    connected.wait_for("All arrays on TPUs are lost")
    seen = len(connected.seen)
    connected.run("%pathways disconnect")
    assert "%pathways reconnect" not in connected.wait_for("The session has ended.", since=seen)


def test_connected_since_is_the_sessions_and_not_that_of_the_last_change_of_a_slice(connected, machine):
    before = record(machine)
    seen = len(connected.seen)
    connected.run(KILL_A_WORKER)
    connected.wait_for("remain lost", since=seen)
    card = connected.run("%pathways status").text
    assert f"connected, since {text.moment(before.connected_since)} (as of" in card
    after = record(machine)
    assert after.state_since > before.state_since
    assert after.since == before.since == before.connected_since


@pytest.mark.thorough
def test_a_card_that_a_restart_leaves_at_connecting_says_when_that_was_and_how_to_look_again(
    connected, machine, open_notebook
):
    other = open_notebook()
    other.begin(f"%load_ext pathways_jupyter\n%pathways connect {SLICES} --wait")
    other.wait_for("holds 2")
    # What is saved: a front end takes nothing from a kernel any more that it is about to restart.
    (card,) = [dict(each["data"]) for each in other.displays.values()]
    for saved in card.values():
        assert re.search(r"As of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. If this no longer changes, %pathways status", saved)
    other.manager.restart_kernel()
    other.client.wait_for_ready(timeout=60)
    assert "not connected" in other.run("%load_ext pathways_jupyter\n%pathways status").text
    # The supervisor of the kernel that was ended removes its session by itself.
    wait_until(lambda: len(sessions(machine)) == 1)
    assert record(machine).kernel_pid == connected.manager.provisioner.pid


@pytest.mark.thorough
def test_a_supervisor_that_does_not_answer_is_not_shown_as_connected(connected, machine):
    # Each waits for an answer; in another process at the same time.
    with frozen(record(machine).pid), ThreadPoolExecutor() as other:
        in_terminal = other.submit(machine.cli, "sessions")
        card = connected.run("%pathways status")
        assert card.status == "ok", card.shown
        assert re.match(r"✗ Session \w+: not answering, was connected since", card.text)
        assert "pw-ok" not in card.html.partition("</style>")[2]
        assert "not answering" in in_terminal.result().stdout
        elsewhere = other.submit(record, machine)
        listed = connected.run("%pathways sessions")
        assert "not answering" in listed.text
        assert "connected" not in listed.text
        assert elsewhere.result().supervisor == "not answering"
        asked = connected.run("import pathways_jupyter\npathways_jupyter.current_session().status()")
        assert (asked.error, "did not answer status within 5 s" in asked.shown) == ("SessionError", True)
    assert connected.run("%pathways status").text.startswith("✓ Session")
    assert "connected" in machine.cli("sessions").stdout


@pytest.mark.thorough
def test_a_session_whose_supervisor_was_killed_is_listed_as_abandoned(machine, cluster):
    with contextlib.closing(Notebook(machine)) as notebook:
        notebook.connect(SLICES)
        # The kernel would remove what is left.
        with frozen(notebook.manager.provisioner.pid):
            os.kill(record(machine).pid, signal.SIGKILL)
            # Its sockets are open until the system has ended it.
            wait_until(lambda: "abandoned" in machine.cli("sessions").stdout)
        notebook.wait_for("supervisor is gone")
        notebook.run("%pathways disconnect")


async def test_sessions_that_end_while_they_are_asked_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    assert await client.present([bare_record(socket=str(tmp_path / "none"))]) == []


@pytest.mark.thorough
def test_the_card_says_where_jax_computes(connected):
    """Backends are cleared to get other devices for a while: the session is connected, and JAX may be elsewhere."""
    connected.run("import jax; import jax.numpy as jnp\nx = jnp.arange(4.0)")
    cleared = connected.run("jax.extend.backend.clear_backends()\nprint(jnp.ones(3).devices())\nx + 1")
    assert "TPU" in cleared.text
    assert "and lost with it: x: float32[4]" in cleared.shown
    connected.run("pass")
    assert any("backends were cleared" in each for each in connected.seen), connected.seen
    assert "Lost arrays: " in connected.run("%pathways events").text
    status = connected.run("%pathways status")
    assert "computes on" not in status.text
    assert "devices" in status.text
    seen = len(connected.seen)
    connected.run("jax.config.update('jax_platforms', 'cpu')\njax.extend.backend.clear_backends()")
    connected.wait_for("JAX computes on cpu by default", since=seen)
    assert connected.run("print(jnp.ones(3).devices())").text.strip() == "{CpuDevice(id=0)}"
    status = connected.run("%pathways status")
    assert "connected" in status.text
    assert "JAX computes on cpu by default: its settings were changed." in status.text
    assert "pw-once-warn" in status.html
    assert "pw-once-ok" not in status.html
    assert connected.run("%pathways reconnect --yes").status == "ok"
    assert "TPU" in connected.run("print(jnp.ones(3).devices())").text
    assert "computes on" not in connected.run("%pathways status").text
