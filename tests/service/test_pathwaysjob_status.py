"""The status of a PathwaysJob, as a function of the job's own and of its JobSet's."""

import pytest

from pathways_jupyter.service.pathwaysjob import conditions

NOW, BEFORE = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"


def jobset(*held, **status):
    found = [{"type": kind, "status": "True", "message": kind.lower(), "lastTransitionTime": BEFORE} for kind in held]
    return {"status": {"conditions": found, **status}}


def states(status):
    return {each["type"]: each["status"] for each in status["conditions"]}


@pytest.mark.parametrize(
    ("held", "state"),
    [
        ((), "Pending"),
        (("StartupPolicyInProgress",), "Pending"),
        (("StartupPolicyInProgress", "StartupPolicyCompleted"), "Running"),
        (("StartupPolicyCompleted", "Suspended"), "Suspended"),
        (("StartupPolicyCompleted", "Completed"), "Completed"),
        (("StartupPolicyCompleted", "Failed", "Suspended"), "Failed"),
    ],
)
def test_the_most_final_condition_of_the_jobset_is_the_state(held, state):
    status = conditions.derive({}, jobset(*held, restarts=2), now=NOW)
    assert states(status) == {state: "True"}
    assert conditions.current({"status": status})[0] == state
    assert status["restarts"] == 2
    assert status.get("terminalState") == (state if state in {"Completed", "Failed"} else None)


@pytest.mark.parametrize(
    ("suspend", "held", "state"),
    [
        (True, ("StartupPolicyCompleted",), "Suspended"),
        (False, ("StartupPolicyInProgress", "Suspended"), "Pending"),
        (False, ("StartupPolicyCompleted", "Suspended"), "Running"),
        (True, ("Completed",), "Completed"),
    ],
)
def test_whether_a_job_is_suspended_is_said_by_its_spec_before_its_conditions_follow(suspend, held, state):
    status = conditions.derive({}, jobset(*held) | {"spec": {"suspend": suspend}}, now=NOW)
    assert states(status) == {state: "True"}


def test_a_transition_keeps_the_time_of_the_jobset_and_ends_the_state_before():
    running = conditions.derive({}, jobset("StartupPolicyCompleted"), now=NOW)
    assert [each["lastTransitionTime"] for each in running["conditions"]] == [BEFORE]
    suspended = conditions.derive({"status": running}, jobset("StartupPolicyCompleted", "Suspended"), now=NOW)
    assert states(suspended) == {"Running": "False", "Suspended": "True"}
    (was,) = [each for each in suspended["conditions"] if each["type"] == "Running"]
    assert (was["lastTransitionTime"], was["message"]) == (NOW, "the job is suspended")
    again = conditions.derive({"status": suspended}, jobset("StartupPolicyCompleted", "Suspended"), now="later")
    assert again == suspended


def test_a_final_state_does_not_change_with_its_jobset():
    over = conditions.derive({}, jobset("Completed"), now=NOW)
    assert conditions.derive({"status": over}, jobset("Failed"), now=NOW) == over
    assert conditions.derive({"status": over}, {}, now=NOW) == over


def test_a_job_that_cannot_have_a_jobset_has_failed_with_the_reason():
    status = conditions.failed({}, "Invalid", "no such type", now=NOW)
    state, condition = conditions.current({"status": status})
    assert (state, condition["reason"], condition["message"]) == ("Failed", "Invalid", "no such type")
    assert status["terminalState"] == "Failed"
