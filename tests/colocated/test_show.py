from __future__ import annotations

from pathways_jupyter.colocated import show
from pathways_jupyter.colocated.errors import Failure
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.results import CallResult, Display, HostResult, Text


def host(index: int) -> Host:
    return Host(index, 0, index, (), ())


def result(*parts: HostResult) -> CallResult:
    return CallResult("c", parts)


def text(pieces, stream: str = "stdout") -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)


def printed(index: int, *texts: str) -> HostResult:
    return HostResult(host(index), tuple(Text("stdout", each) for each in texts))


def test_every_line_is_under_its_hosts_name() -> None:
    shown = show.output(result(printed(0, "a\nb", "c\n"), printed(1, "d")))
    assert text(shown) == "[host 0] a\n[host 0] bc\n[host 1] d\n"


def test_equal_output_is_shown_once_when_collapsed() -> None:
    shown = show.output(result(printed(0, "a\n"), printed(1, "b\n"), printed(2, "a\n")), collapse=True)
    assert text(shown) == "[hosts 0, 2] a\n[host 1] b\n"


def test_equal_beginnings_of_output_of_different_size_are_not_collapsed() -> None:
    floods = [HostResult(host(index), (Text("stdout", "a\n"),), size=50_000_002 + index) for index in range(2)]
    shown = text(show.output(result(*floods), collapse=True))
    assert "[host 0] a" in shown
    assert "[host 1] a" in shown
    assert "hosts 0" not in shown


def test_what_was_shown_while_the_cell_ran_is_not_shown_again() -> None:
    shown = show.output(result(printed(0, "a\nb\nc\n"), printed(1, "d\n")), shown={0: ["a", "b"]})
    assert text(shown) == "[host 0] c\n[host 1] d\n"


def test_everything_is_shown_again_when_the_log_had_gaps() -> None:
    shown = show.output(result(printed(0, "a\nb\nc\n")), shown={0: ["a", "c"]})
    assert text(shown) == "[host 0] a\n[host 0] b\n[host 0] c\n"


def test_quiet_leaves_out_what_was_printed_and_keeps_displays() -> None:
    part = HostResult(host(0), (Text("stdout", "a\n"), Display({"image/png": b"x"}), Text("stdout", "b\n")))
    pieces = list(show.output(result(part), quiet=True))
    assert [dict(piece.data) for piece in pieces if not piece.stream] == [{"image/png": b"x"}]
    assert "a" not in text(pieces)


def test_a_flood_ends_with_a_note_and_its_last_lines() -> None:
    part = HostResult(host(0), (Text("stdout", "a\n"),), size=50_000_002, tail="z\n")
    pieces = list(show.output(result(part)))
    assert "50.0 MB more were printed" in text(pieces, "stderr")
    assert text(pieces).endswith("[host 0] z\n")


def failed(index: int, message: str) -> HostResult:
    return HostResult(
        host(index), (), failure=Failure((index,), "ValueError", message, f"Traceback\n{message}", 3, "f()")
    )


def test_different_exceptions_are_reported_with_their_hosts() -> None:
    error = result(failed(0, "bad"), failed(1, "worse"), printed(2, ""), failed(3, "bad")).error()
    assert [each.hosts for each in error.failures] == [(0, 3), (1,)]
    assert "On hosts 0, 3:\n" in error.remote_traceback()
