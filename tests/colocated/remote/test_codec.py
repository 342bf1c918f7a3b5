from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pathways_jupyter.colocated.remote import codec


@given(st.dictionaries(st.text(), st.text() | st.integers()), st.lists(st.binary()), st.binary())
def test_a_message_comes_back_whatever_follows_it(head, blobs, rest) -> None:
    data = codec.encode(head, blobs)
    assert codec.length(data) == len(data)
    assert codec.decode(data + rest) == (head, blobs)
