"""The benches read a connection's stages however quick they were, and one that fails does not end the others."""

import json
import re

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import connect, figures, report
from benchmarks.measure import NotMeasured, Row, Table
from pathways_jupyter.base.events import Event, EventKind, Stage


def staged(stage, at, *, done=False):
    return Event(EventKind.STAGE, "", at, {"stage": stage.value, **({"done": True} if done else {})})


SLOW = [
    staged(Stage.DISCOVER, 1.0),
    staged(Stage.CREATE, 1.5),
    staged(Stage.START, 1.75),
    staged(Stage.START, 2.75, done=True),
    staged(Stage.PLACE, 3.0, done=True),
    staged(Stage.TUNNEL, 3.25, done=True),
]
# The pod was ready before anything was reported of it, the tunnel before the slices, and there was no discovery.
QUICK = [
    staged(Stage.CREATE, 1.25),
    staged(Stage.START, 1.5, done=True),
    staged(Stage.TUNNEL, 1.75, done=True),
    staged(Stage.PLACE, 1.875, done=True),
]


def test_every_stage_has_a_time_in_every_run():
    slow, quick = connect.stage_seconds(SLOW, 0.5, 3.5), connect.stage_seconds(QUICK, 1.0, 2.0)
    assert set(slow) == set(quick) == {"before", *Stage}
    assert slow[Stage.CREATE] == 0.25
    assert slow[Stage.START] == 1.0
    assert quick[Stage.CREATE] == quick[Stage.DISCOVER] == 0.0
    assert quick[Stage.START] == 0.25


@pytest.mark.parametrize(("events", "began", "ended"), [(SLOW, 0.5, 3.5), (QUICK, 1.0, 2.0)])
def test_the_stages_add_up_to_the_connection(events, began, ended):
    assert sum(connect.stage_seconds(events, began, ended).values()) == ended - began


@pytest.mark.parametrize("order", [(SLOW, QUICK), (QUICK, SLOW)])
def test_the_table_does_not_depend_on_which_run_was_quick(order):
    runs = [
        {"connect": 1.0, "result": 2.0, "disconnect": 0.5, **connect.stage_seconds(events, 0.5, 3.5)}
        for events in order
    ]
    theirs = {"connect": 1.0, "result": 2.0, "disconnect": 0.5}
    middle = connect.medians(runs)
    shown = report.markdown_table(connect.table(middle, middle, middle, theirs))
    assert "| of which create | 125 | 125 | 125 | not measured |" in shown
    assert "of which job" not in shown


def failing():
    raise RuntimeError("-m benchmarks.sink ended with 1:\nTraceback (most recent call last):\nKeyError: 'create'")


def without_ssh():
    raise NotMeasured("it needs ssh and sshd.")


def good():
    return [Table("Good", "ms", [Row("one", {"ours": 12.0})])]


@pytest.fixture(autouse=True)
def own_directories(monkeypatch, tmp_path):
    """Restore the environment afterwards: `main` changes that of its process."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


def test_a_bench_that_fails_says_so_and_the_others_are_reported(monkeypatch, tmp_path, capsys):
    benches = {"failing": failing, "without-ssh": without_ssh, "good": good}
    monkeypatch.setattr(benchmarks, "_ON_THEIR_OWN", benches)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--output", str(tmp_path / "report"), *benches])
    assert benchmarks.main() == 1
    for page in (capsys.readouterr().out, (tmp_path / "report.md").read_text()):
        assert "## failing\n\n- Not measured: KeyError: 'create'\n" in page
        assert "## without-ssh\n\n- Not measured: it needs ssh and sshd.\n" in page
        assert "| one | 12 |" in page
    document = json.loads((tmp_path / "report.json").read_text())
    assert [table["title"] for table in document["tables"]] == ["failing", "without-ssh", "Good"]


def test_what_this_machine_lacks_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmarks, "_ON_THEIR_OWN", {"without-ssh": without_ssh, "good": good})
    monkeypatch.setattr("sys.argv", ["benchmarks", "--output", str(tmp_path / "report"), "without-ssh", "good"])
    assert benchmarks.main() == 0


def test_without_names_all_run_but_the_interruption(monkeypatch, tmp_path):
    ran = []

    def noting(name):
        return lambda *_: ran.append(name) or good()

    monkeypatch.setattr(benchmarks.imports, "run", noting("imports"))
    monkeypatch.setattr(benchmarks, "_ON_CLUSTER", {"interruption": noting("interruption")})
    monkeypatch.setattr(benchmarks, "_ON_THEIR_OWN", {name: noting(name) for name in ("elastic", "sidebar")})
    monkeypatch.setattr("sys.argv", ["benchmarks", "--output", str(tmp_path / "report")])
    assert benchmarks.main() == 0
    assert ran == ["imports", "elastic", "sidebar"]


def test_a_bench_that_does_not_exist_is_refused_before_any_runs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "imports", "tunnels"])
    with pytest.raises(SystemExit):
        benchmarks.main()
    assert "tunnels" in capsys.readouterr().err


def test_the_figures_in_prose_are_those_of_the_benchmarks():
    shown = [
        f"{each.page}: {there} -> {each.written(figures.read())}" for each, there in figures.outdated(figures.read())
    ]
    assert not shown, "python -m benchmarks.figures writes them"


def test_a_rate_or_a_time_of_ours_in_a_page_is_a_measured_one():
    unheld = []
    for page in sorted(figures.DOCS.glob("*.md")):
        if page.stem != "benchmarks":
            text = page.read_text(encoding="utf-8")
            for each in figures.FRAGMENTS:
                if each.page == page.name:
                    text = each.pattern.sub("", text)
            unheld += [f"{page.name}: {each}" for each in re.findall(rf"{figures.NUMBER} (?:MB/s|us)\b", text)]
    assert not unheld, "add them to benchmarks/figures.py"
