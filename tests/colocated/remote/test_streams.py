from __future__ import annotations

import logging
import sys
import threading

import pytest

from pathways_jupyter.colocated.remote import streams
from pathways_jupyter.colocated.remote.transcript import Transcript


@pytest.fixture(autouse=True)
def _restored():
    before = sys.stdout, sys.stderr
    handlers = list(logging.getLogger().handlers)
    yield
    sys.stdout, sys.stderr = before
    logging.getLogger().handlers[:] = handlers


def printed(transcript: Transcript) -> str:
    return "".join(item["text"] for item in transcript.close()[0]["items"])


def test_calls_at_the_same_time_keep_their_own_output() -> None:
    both = threading.Barrier(2, timeout=30)
    transcripts = {name: Transcript(name) for name in "ab"}

    def work(name: str) -> None:
        with streams.written_to(transcripts[name]):
            for number in range(100):
                if number == 50:
                    both.wait()
                print(name, number)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "ab":
        assert printed(transcripts[name]) == "".join(f"{name} {number}\n" for number in range(100))


def test_a_thread_that_a_call_started_prints_into_the_call() -> None:
    transcript = Transcript("a")
    with streams.written_to(transcript):
        thread = threading.Thread(target=print, args=("from a thread",))
        thread.start()
        thread.join()
    assert printed(transcript) == "from a thread\n"


def test_outside_a_call_text_goes_where_it_went(capsys) -> None:
    streams.install()
    print("no call's")
    assert capsys.readouterr().out == "no call's\n"


def test_a_warning_without_a_handler_is_captured(monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    transcript = Transcript("a")
    with streams.written_to(transcript):
        logging.getLogger("loader").warning("slow disk")
    assert printed(transcript) == "slow disk\n"


def test_of_a_librarys_log_lines_a_cell_shows_warnings_until_its_code_asks_for_more(caplog) -> None:
    """The process's handler writes to its log, as a sidecar's does; a library's logger has a level of its own."""
    library, root, level = logging.getLogger("a.library"), logging.getLogger(), logging.getLogger().level
    transcript = Transcript("a")
    library.setLevel(logging.INFO)
    try:
        with streams.written_to(transcript):
            library.info("compiling")
            library.warning("slow")
            root.setLevel(logging.INFO)
            library.info("asked for")
    finally:
        root.setLevel(level)
        library.setLevel(logging.NOTSET)
    assert printed(transcript) == "WARNING:a.library:slow\nINFO:a.library:asked for\n"
