"""What the commands about faults make of their arguments."""

from __future__ import annotations

import pytest

from pathways_jupyter import entry, fault_requests
from pathways_jupyter.commands.magic import MAGIC
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.elastic import fault_targets
from pathways_jupyter.elastic.fault_targets import Target
from pathways_jupyter.elastic.faults import Plan
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.magics.parser import parse

NO_SLICES = Target(ConnectConfig(kubeconfig="/nonexistent"), "train", frozenset())


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("2m", 120), ("1.5h", 5400), (7, 7), (None, 9), (" 4s", 4)]
)
def test_times(text, seconds):
    assert entry.time("--for", text, 9) == seconds


@pytest.mark.parametrize("text", ["", "s", "x", "-1", "1d", "inf", "nan", "1 2", "1e30s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="--for must be a time"):
        entry.time("--for", text, 9)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"what": "flood", "slice": "1"}, "There is no fault 'flood'"),
        ({}, "Which fault?"),
        ({"what": "slow"}, "Which slice?"),
        ({"what": "slow", "slice": "one"}, "A slice is a whole number, not one."),
        ({"what": "slow", "slice": "9" * 5000}, "The slice must be at most"),
        ({"what": "slow", "slice": "1"}, "Slice 1 is not one of this session's"),
        ({"what": "slice-down", "slice": "1", "seconds": "soon"}, "--for must be a time"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_before_anything_is_asked(values, said):
    with pytest.raises(ConfigError, match=said):
        fault_requests.inject(NO_SLICES, values)


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("heal 1 2", "Healing takes no second slice.", "Leave out 2, and heal it by a line of its own"),
        ("heal --for 3s", "Healing takes no duration.", "Leave out --for."),
        ("heal --random", "Healing takes no choice at random.", "Leave out --random."),
        ("inject slow 1 --every 5s", "Injecting one fault takes no interval.", "Leave out --every, or add --random."),
        ("inject slow 1 --seed 0", "Injecting one fault takes no seed.", "Leave out --seed, or add --random."),
        ("inject slow 1 --times 2", "Injecting one fault takes no number of faults.", "Leave out --times"),
        ("inject slow 1 --metric loss", "Injecting one fault takes no metric.", "Leave out --metric."),
        ("inject --random --after 5s", "Injecting faults at random takes no delay.", "Leave out --after."),
        ("inject --random --at-step 5", "Injecting faults at random takes no step.", "Leave out --at-step."),
        ("export run.json 2", "Exporting a run takes no second slice.", "Leave out 2."),
        ("export run.json --for 3s", "Exporting a run takes no duration.", "Leave out --for."),
        ("--for 3s", "Showing a run takes no duration.", "Leave out --for."),
    ],
)
def test_what_an_action_would_ignore_is_refused(line, said, hint):
    values = parse(f"elastic {line}", MAGIC).values
    with pytest.raises(ConfigError) as refused:
        fault_requests.check(values)
    assert str(refused.value) == said
    assert refused.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--metric loss --metric accuracy",
        "heal",
        "heal 1 --yes",
        "inject slice-down 1 --for 10s --after 5s --yes",
        "inject slow 1 --at-step 100",
        "inject --random --every 60s --for 5s --seed 4 --times 3",
        "export run.json",
    ],
)
def test_what_an_action_uses_is_taken(line):
    fault_requests.check(parse(f"elastic {line}", MAGIC).values)


@pytest.mark.parametrize("text", ["2147483648", "9" * 5000])
def test_a_number_that_kubernetes_cannot_store_is_refused(text):
    assert entry.whole_number("--tail", "2147483647") == 2**31 - 1
    with pytest.raises(ConfigError, match="--tail must be at most 2147483647, not "):
        entry.whole_number("--tail", text)


def test_faults_at_random():
    assert fault_requests.plan({"every": "2m", "times": "3", "yes": True}, seed=4) == Plan(120, 10, 4, 3, True)
    assert fault_requests.plan({"seed": "8", "seconds": "5s"}, seed=4) == Plan(60, 5, 8)
    with pytest.raises(ConfigError, match="chooses the faults itself"):
        fault_requests.plan({"what": "slow"}, seed=4)
    for values, said in (
        ({"every": "0"}, "--every must be more than 0 s"),
        ({"seconds": "0s"}, "--for must be more than 0 s"),
        ({"times": "0"}, "at least one fault"),
    ):
        with pytest.raises(ConfigError, match=said):
            fault_requests.plan(values, seed=4)


def test_a_slice_that_the_target_does_not_have_is_not_healed():
    with pytest.raises(ConfigError, match="Slice 9 is not one of this session's"):
        fault_requests.heal(NO_SLICES, "9")


def test_what_was_healed():
    assert fault_requests.healed(()) == "Healed; no node was kept from pods."
    assert fault_requests.healed(("a",)) == "Healed: a takes pods again."
    assert fault_requests.healed(("a", "b")) == "Healed: a, b take pods again."


def test_either_a_session_or_a_job():
    with pytest.raises(ConfigError, match="Either a session or a job"):
        fault_requests.target({"job": "train", "session": "ab"})
    aimed = fault_requests.target({"job": "train", "kubeconfig": "/k", "namespace": "team"})
    assert (aimed.jobset, aimed.slices, aimed.where.namespace) == ("train", None, "team")


def test_a_target_comes_back_as_it_was_in_another_process():
    config = ConnectConfig(kubeconfig="/k", namespace="team", instances={"tpuv6e:2x2": 1})
    assert fault_targets.from_json(fault_targets.to_json(config)) == config
