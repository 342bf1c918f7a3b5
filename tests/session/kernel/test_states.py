"""In each state, Python's calls and the magics refuse with the words of the table, and change nothing."""

import pytest

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.session.kernel import session as sessions
from pathways_jupyter.session.verdicts import Does, SessionCommand

pytestmark = pytest.mark.thorough


@pytest.fixture
def calls(connected):
    return {
        SessionCommand.CONNECT_OTHERWISE: [lambda: sessions.attempt_connect(connected.config)],
        SessionCommand.RECONNECT: [connected.reconnect],
        SessionCommand.SUSPEND: [connected.suspend, connected.suspension],
        SessionCommand.RESUME: [connected.resume, connected.suspender.restore],
        SessionCommand.SAVE: [lambda: connected.save("name", {"x": 1})],
        SessionCommand.LOAD: [lambda: connected.load("name")],
        SessionCommand.RUN: [connected.profile, connected.environment],
    }


def test_each_call_and_magic_refuses_in_the_words_of_the_table(connected, calls, monkeypatch):
    refused = 0
    for state in SessionState:
        monkeypatch.setattr(connected._side.link, "state", state)
        for command, each in calls.items():
            found = connected.verdict(command)
            # A new proxy that is being made is waited for, and so is an interrupted connection.
            waits = command in {SessionCommand.RECONNECT, SessionCommand.RESUME} or state is SessionState.INTERRUPTED
            if found.acts or (found.does is Does.WAITS and waits):
                continue
            asked = [*each, lambda command=command: NotebookSession(None).need(command)]
            for call in asked if found.does is Does.REFUSES else each:
                with pytest.raises(SessionError) as caught:
                    call()
                assert (str(caught.value), caught.value.hint) == (found.sentence, found.hint), (state, command)
                refused += 1
    assert refused > 50
    monkeypatch.undo()
    assert connected.state is connected.status().state is SessionState.CONNECTED
    assert connected.has_devices
