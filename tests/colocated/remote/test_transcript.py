from __future__ import annotations

import io

import pytest

from pathways_jupyter.colocated.remote.transcript import (
    LIVE_BYTES,
    Transcript,
    rendered,
)


def test_whole_lines_are_repeated_in_the_log_with_the_call() -> None:
    log = io.StringIO()
    transcript = Transcript("c", log=log)
    transcript.write("stdout", "one\ntw")
    transcript.write("stderr", "error\n")
    transcript.write("stdout", "o\nthree")
    assert log.getvalue() == "[cell c] one\n[cell c]! error\n[cell c] two\n"


def test_a_line_that_is_written_over_is_reported_now_and_then_and_at_its_end() -> None:
    log = io.StringIO()
    transcript = Transcript("c", log=log)
    for percent in range(100):
        transcript.write("stderr", f"\r{percent}%")
    transcript.write("stderr", "\r100%\n")
    transcript.note("a word")
    assert log.getvalue() == "[cell c]~! 0%\n[cell c]! 100%\n[cell c]~ a word\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [("plain", "plain"), ("\r1%\r2%", "2%"), ("1%\r2%\r", "2%"), ("windows\r", "windows"), ("\r", ""), ("", "")],
)
def test_a_line_is_rendered_as_a_screen_shows_it(line, shown) -> None:
    assert rendered(line) == shown


def test_a_flood_does_not_fill_the_log() -> None:
    log = io.StringIO()
    transcript = Transcript("c", log=log)
    for _ in range(10_000):
        transcript.write("stdout", "x" * 100 + "\n")
    assert len(log.getvalue()) < 2 * LIVE_BYTES


def test_nothing_is_added_after_the_end() -> None:
    transcript = Transcript("c")
    transcript.close()
    transcript.write("stdout", "late\n")
    transcript.display({"text/plain": "late"})
    assert transcript.close()[0]["items"] == []
