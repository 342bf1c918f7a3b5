"""The table of states and commands: each cell says what there is, and leads somewhere."""

import itertools

import pytest
from session_records import new_record

from pathways_jupyter.base.events import SessionSlice, SessionState, SuspendedArrays, Transfer
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.session import registry
from pathways_jupyter.session.verdicts import TABLE, Does, SessionCommand, Situation, row_of, verdict

SAVED = SuspendedArrays(4, 1_200_000_000, "gs://b/saved/u/suspended-ab", 1.0)
HALF = Transfer(500_000_000, 1_200_000_000, 12.0)
ABOUT = {
    SessionState.SUSPENDING: {"transfer": HALF},
    SessionState.SUSPENDED: {"saved": SAVED},
    SessionState.RESUMING: {"saved": SAVED, "transfer": HALF},
    Situation.UNRESUMED: {"saved": SAVED},
}


@pytest.fixture
def in_row(runtime):
    """Makes a session in a row of the table."""

    def make(row):
        if row is Situation.NONE:
            return None
        about = ABOUT.get(row, {})
        if row in {Situation.SILENT, Situation.CUT_OFF, Situation.ABANDONED}:
            return new_record(state=SessionState.CONNECTED, supervisor=str(row))
        state = SessionState.RESUMING if row is Situation.UNRESUMED else row
        return new_record(state=state, state_since=1.0, **about)

    return make


@pytest.mark.parametrize("row", [*SessionState, *Situation])
def test_each_cell_of_a_row_has_words_in_each_face(in_row, row):
    record = in_row(row)
    assert row_of(record) is row
    for command in SessionCommand:
        found = verdict(record, command)
        assert bool(found.sentence) == (found.does is not Does.DOES), command
        assert "{" not in found.sentence, command
        for face in Face:
            assert "{" not in worded(found.hint, face)
            assert found.to_json(face)["does"] == found.does
        if found.does is Does.REFUSES:
            assert found.hint, f"{row} {command} leads nowhere"
            assert str(found.error()) == found.sentence


def test_a_refusal_names_only_commands_that_act():
    named = {each: f"{{{each}}}" for each in (SessionCommand.RECONNECT, SessionCommand.RESUME, SessionCommand.SUSPEND)}
    for (row, cells), (command, name) in itertools.product(TABLE.items(), named.items()):
        for asked, found in cells.items():
            if found.does is Does.REFUSES and name in getattr(found.hint, "template", ""):
                assert cells[command].acts, f"{row}: {asked} leads to {command}"


def test_nothing_is_offered_that_fights_what_goes_on(in_row):
    for row in (SessionState.SUSPENDING, SessionState.RESUMING):
        record = in_row(row)
        for command in set(SessionCommand) - {SessionCommand.DISCONNECT}:
            found = verdict(record, command)
            assert found.does is Does.WAITS
            assert "500.0 MB of 1.2 GB, about 12 s left" in found.sentence
        assert verdict(record, SessionCommand.DISCONNECT).does is Does.ASKS


def test_a_proxy_that_is_made_for_saved_arrays_is_part_of_resuming_them(in_row):
    for state in (SessionState.STARTING, SessionState.WAITING):
        assert row_of(new_record(state=state)) is state
        assert row_of(new_record(state=state, saved=SAVED)) is SessionState.RESUMING


def test_the_number_of_arrays_is_said_where_it_is_known(in_row):
    connected = in_row(SessionState.CONNECTED)
    assert "costs its arrays on TPUs" in verdict(connected, SessionCommand.RECONNECT).sentence
    known = verdict(connected, SessionCommand.RECONNECT, arrays="its 3 arrays (1.2 GB)").sentence
    assert "costs its 3 arrays (1.2 GB) on TPUs" in known
    suspended = verdict(in_row(SessionState.SUSPENDED), SessionCommand.DISCONNECT)
    assert "with 4 arrays (1.2 GB) saved" in suspended.sentence
    assert "The save suspended-ab" in suspended.hint


def test_what_is_down_is_said_before_a_degraded_session_gets_a_new_proxy():
    slices = (SessionSlice(0, 0, up=True), SessionSlice(6, 1, up=False))
    degraded = new_record(state=SessionState.DEGRADED, slices=slices)
    said = verdict(degraded, SessionCommand.RECONNECT, arrays="its 3 arrays (1.2 GB)").sentence
    assert "is degraded: slice 6 (your 1) is down. A new proxy costs its 3 arrays (1.2 GB) on TPUs." in said


def test_a_faulty_supervisor_comes_before_the_state_that_was_known_last(in_row):
    for fault, does in ((registry.SILENT, Does.WAITS), (registry.ABANDONED, Does.REFUSES)):
        record = new_record(state=SessionState.SUSPENDED, saved=SAVED, supervisor=fault)
        assert verdict(record, SessionCommand.RESUME).does is does
