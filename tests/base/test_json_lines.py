from __future__ import annotations

import pytest

from pathways_jupyter.base import json_lines


def test_a_message_is_one_line_and_comes_back_as_it_was():
    message = {"text": "two\nlines", "list": [1, None, {"a": "ü"}]}
    line = json_lines.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json_lines.decode(line) == json_lines.decode(line[:-1]) == message


def test_a_message_that_was_cut_off_is_no_message_wherever_it_was_cut():
    line = json_lines.encode({"a": 12, "b": "}"})
    for end in range(1, len(line) - 1):
        with pytest.raises(ValueError, match="not a JSON object"):
            json_lines.decode(line[:end])
    with pytest.raises(ValueError, match="the connection was closed"):
        json_lines.decode(b"")


@pytest.mark.parametrize("line", [b"\n", b"null\n", b"[1]\n", b'"a"\n', b"\xff\n", b"[" * 100_000])
def test_anything_but_an_object_is_refused(line):
    with pytest.raises(ValueError, match="not a JSON object"):
        json_lines.decode(line)
