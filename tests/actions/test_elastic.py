"""Arguments of the commands about faults."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest

from pathways_jupyter.actions import elastic as actions
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import SessionSlice, SessionState
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.elastic import fault_targets
from pathways_jupyter.elastic.fault_targets import FaultTarget
from pathways_jupyter.magics import elastic as notebook
from pathways_jupyter.magics.parser import parse

NO_SLICES = FaultTarget(ConnectConfig(kubeconfig="/nonexistent"), "train", ())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"fault": "slow", "slice": "one"}, "A slice is a whole number, not one."),
        ({"fault": "slow", "slice": "9" * 5000}, "The slice must be at most"),
        ({"fault": "slow", "slice": "1"}, "Slice 1 is not one of this session's"),
        ({"fault": "slice-down", "slice": "1", "seconds": "soon"}, "--for must be a time"),
        ({"fault": "drain-node", "slice": "1", "seconds": "0s"}, "must last longer than 0 s"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_before_anything_is_asked(values, said):
    with pytest.raises(ConfigError, match=said):
        actions.prepare(NO_SLICES, values)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("elastic heal 1 2", "elastic heal does not take '2'."),
        ("elastic heal --for 3s", "elastic heal does not take '--for'."),
        ("elastic inject drain-node 1 --metric loss", "elastic inject does not take '--metric'."),
        ("elastic inject flood 1", "'flood' is not one of 'slice-down', 'drain-node'."),
        ("elastic export run.json 2", "elastic export does not take '2'."),
        ("elastic export run.json --for 3s", "elastic export does not take '--for'."),
        ("elastic --for 3s", "elastic does not take '--for'."),
    ],
)
def test_what_a_command_would_ignore_is_refused(line, said):
    with pytest.raises(ConfigError) as refused:
        parse(line, MAGIC)
    assert str(refused.value) == said


class Connected:
    """A notebook with a session that has slices 0 and 1."""

    def __init__(self):
        slices = [SessionSlice(number, number, up=True) for number in (0, 1)]
        record = SimpleNamespace(slices=slices, pathways_job="", service="s")
        self.session = SimpleNamespace(record=record, state=SessionState.CONNECTED)
        self.notices = queue.SimpleQueue()

    def need(self):
        return self.session

    def notify(self, lines):
        self.notices.put(lines)


def test_a_fault_is_either_after_a_time_or_at_a_step():
    values = parse("elastic inject drain-node 1 --after 5s --at-step 5", MAGIC).values
    with pytest.raises(ConfigError, match="--after and --at-step say when; both cannot be true") as refused:
        notebook.inject(Connected(), values)
    assert refused.value.hint == "Leave one of them out."


def test_a_fault_for_later_hits_no_slice_that_the_session_has_lost_by_then(monkeypatch):
    hit = []
    monkeypatch.setattr(actions.faults, "slice_down", lambda target, number, **_: hit.append(target.find(number)))
    notebook_of_one = Connected()
    values = parse("elastic inject slice-down 1 --at-step 5 --yes", MAGIC).values
    promised = notebook.inject(notebook_of_one, values)
    assert "will be injected" in promised.text
    # As when it is disconnected: the slice is free for others.
    notebook_of_one.session.record.slices = ()
    notebook_of_one.session.state = SessionState.CLOSED
    message, _ = notebook_of_one.notices.get(timeout=30)
    assert message == "Slice 1 is not one of this session's."
    assert hit == []


def test_heal_cancels_the_faults_to_come_of_its_slice(monkeypatch):
    monkeypatch.setattr(actions.faults, "slice_down", lambda target, number, **_: f"hit {number}")
    monkeypatch.setattr(actions.faults, "heal", lambda target, number: ())
    here = Connected()

    def ask(command, line):
        return command(here, parse(f"elastic {line}", MAGIC).values).text

    for number in (0, 1, 1):
        ask(notebook.inject, f"inject slice-down {number} --after 1h")
    assert ask(notebook.heal, "heal 1") == "Healed; no node was kept from pods. Cancelled: 2 faults to come."
    assert ask(notebook.heal, "heal") == "Healed; no node was kept from pods. Cancelled: 1 fault to come."
    assert ask(notebook.heal, "heal") == "Healed; no node was kept from pods."
    ask(notebook.inject, "inject slice-down 1 --after 0.01")
    assert here.notices.get(timeout=30) == ["hit 1"]


def test_either_a_session_or_a_job():
    with pytest.raises(ConfigError, match="Either a session or a job"):
        actions.target({"job": "train", "session": "ab"})
    aimed = actions.target({"job": "train", "kubeconfig": "/k", "namespace": "team"})
    assert (aimed.jobset, aimed.held, aimed.where.namespace) == ("train", None, "team")


def test_a_target_comes_back_as_it_was_in_another_process():
    config = ConnectConfig(kubeconfig="/k", namespace="team", instances={"tpuv6e:2x2": 1})
    assert fault_targets.from_json(fault_targets.to_json(config)) == config
