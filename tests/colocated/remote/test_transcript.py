from __future__ import annotations

import io

import pytest

from pathways_jupyter.colocated.remote.transcript import (
    DISPLAY_BYTES,
    LIVE_BYTES,
    TAIL_BYTES,
    TEXT_BYTES,
    Transcript,
    rendered,
)


def test_streams_and_displays_stay_in_order() -> None:
    transcript = Transcript("c")
    transcript.write("stdout", "a")
    transcript.write("stdout", "b\n")
    transcript.write("stderr", "c\n")
    transcript.display({"text/plain": "d", "image/png": b"\x89"})
    transcript.write("stdout", "e")
    head, blobs = transcript.close()
    assert [item["kind"] for item in head["items"]] == ["stdout", "stderr", "display", "stdout"]
    assert head["items"][0]["text"] == "ab\n"
    assert head["items"][2]["data"] == {
        "text/plain": {"blob": 0, "text": True},
        "image/png": {"blob": 1, "text": False},
    }
    assert blobs == [b"d", b"\x89"]


def test_a_flood_leaves_its_beginning_and_its_end() -> None:
    transcript = Transcript("c")
    written = "".join(f"line {number}\n" for number in range(200_000))
    for line in written.splitlines(keepends=True):
        transcript.write("stdout", line)
    head, _ = transcript.close()
    assert head["size"] == len(written)
    assert written.startswith(head["items"][0]["text"])
    assert TEXT_BYTES - 20 < len(head["items"][0]["text"]) <= TEXT_BYTES
    assert written.endswith(head["tail"])
    assert TAIL_BYTES <= len(head["tail"]) < 2 * TAIL_BYTES


def test_one_huge_write_is_cut_too() -> None:
    transcript = Transcript("c")
    transcript.write("stdout", "x" * (TEXT_BYTES + 100_000))
    head, _ = transcript.close()
    assert (len(head["items"][0]["text"]), len(head["tail"])) == (TEXT_BYTES, TAIL_BYTES)


def test_a_large_display_is_left_out_with_its_size() -> None:
    transcript = Transcript("c")
    transcript.display({"text/plain": "<Figure>", "image/png": b"x" * DISPLAY_BYTES})
    head, blobs = transcript.close()
    assert head["items"][0]["data"]["image/png"] == {"size": DISPLAY_BYTES}
    assert blobs == [b"<Figure>"]


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
