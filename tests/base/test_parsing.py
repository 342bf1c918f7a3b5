"""Numbers, times and paths of command lines, and the reason in a failed program's output."""

from pathlib import Path

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import parse_path, parse_ranges, parse_seconds, parse_whole_number, ranges, reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("2m", 120),
        ("1.5h", 5400),
        (7, 7),
        (" 4s", 4),
        ("0", 0),
        ("7d", 604800),
        ("1w", 604800),
        ("1h30m", 5400),
    ],
)
def test_times(text, seconds):
    assert parse_seconds("--for", text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "x", "-1", "d", "7 d", "-1d", "1y", "7days", "1h30", "inf", "nan", "1 2", "1e30s"]
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="--for must be a time"):
        parse_seconds("--for", text)


def test_a_time_outside_of_its_range_is_refused_with_the_range():
    with pytest.raises(ConfigError, match=r"--grace must be a time from 0 to 2147483647 seconds, not 1e30\."):
        parse_seconds("--grace", "1e30")
    with pytest.raises(ConfigError, match=r"--interval must be a time from 1 to 60 seconds, not 0\.5\."):
        parse_seconds("--interval", "0.5", least=1, most=60)
    with pytest.raises(ConfigError, match=r"--since must be a time from 1 to 2147483647 seconds, not 0\."):
        parse_seconds("--since", "0", least=1)


def test_a_path_of_a_user_who_does_not_exist_is_one_that_is_not_found():
    assert parse_path("~/x") == Path.home() / "x"
    assert parse_path("~no-such-user/x") == Path("~no-such-user/x")
    assert parse_path("a/b") == Path("a/b")


def test_ranges_are_read_as_they_are_written():
    for numbers in ([], [3], [0, 2, 3, 4], range(100_000)):
        assert parse_ranges(ranges(numbers)) == set(numbers)


@pytest.mark.parametrize("text", ["0-9999999999", "3-1", "-1", "a", "1-b", "9" * 5000])
def test_what_is_no_range_is_refused_and_fills_no_memory(text):
    with pytest.raises(ValueError):
        parse_ranges(text)


@pytest.mark.parametrize("text", ["2147483648", "9" * 5000])
def test_a_number_that_kubernetes_cannot_store_is_refused(text):
    assert parse_whole_number("--tail", "2147483647") == 2**31 - 1
    with pytest.raises(ConfigError, match="--tail must be at most 2147483647, not "):
        parse_whole_number("--tail", text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "1e3"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(ConfigError, match="--tail must be a whole number"):
        parse_whole_number("--tail", text)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "no message"),
        (")\n}\n", "no message"),
        ("starting\nstopped\n", "stopped"),
        ("Traceback (most recent call last):\n  x()\nValueError: 7.\n", "ValueError: 7"),
        ("ERROR: no account\nTo sign in, run:\n\n  $ gcloud auth login\n)\n", "ERROR: no account"),
        ("F1126 22:40:11.123456   12345 cred.go:145] it failed:   exit status 1\n)\n", "it failed: exit status 1"),
        ("error: " + "abc " * 100, "error: " + "abc " * 73 + "..."),
    ],
)
def test_the_reason_in_an_output_is_its_last_line_about_an_error(output, said):
    assert reason(output, "no message") == reason(output.encode(), "no message") == said
