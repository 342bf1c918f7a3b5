"""The version that server and client speak."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.messages import Version

_numbers = st.integers(0, 2 * messages.NEWEST.protocol)


@st.composite
def offers(draw) -> tuple[Version, Version]:
    """The oldest and the newest version that some client speaks."""
    protocols, encodings = (sorted(draw(st.tuples(_numbers, _numbers))) for _ in range(2))
    return Version(protocols[0], encodings[0]), Version(protocols[1], encodings[1])


@given(offers())
def test_the_answer_lies_in_what_both_sides_speak(offer):
    oldest, newest = offer
    chosen = messages.choose_version(oldest, newest)
    if oldest.protocol > messages.NEWEST.protocol or oldest.serdes > messages.NEWEST.serdes:
        assert chosen is None
        return
    # A client that is answered anything else aborts.
    assert chosen is not None
    assert oldest.protocol <= chosen.protocol <= min(newest.protocol, messages.NEWEST.protocol)
    assert oldest.serdes <= chosen.serdes <= min(newest.serdes, messages.NEWEST.serdes)


def test_clients_that_can_speak_one_and_the_same_version():
    jaxlib = {"0.8": ((15, 0), (19, 0)), "0.9": ((16, 0), (22, 0)), "0.10": ((16, 0), (25, 3))}
    found = {
        name: messages.choose_version(Version(*oldest), Version(*newest)) for name, (oldest, newest) in jaxlib.items()
    }
    assert found == {"0.8": Version(19, 0), "0.9": Version(19, 0), "0.10": Version(19, 3)}
