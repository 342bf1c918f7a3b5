from __future__ import annotations

import pytest

from pathways_jupyter.base import json_lines


def test_a_message_that_was_cut_off_is_no_message_wherever_it_was_cut():
    line = json_lines.encode({"a": 12, "b": "}"})
    for end in range(1, len(line) - 1):
        with pytest.raises(ValueError, match="not a JSON object"):
            json_lines.decode(line[:end])
    with pytest.raises(ValueError, match="the connection was closed"):
        json_lines.decode(b"")
