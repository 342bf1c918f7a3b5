"""``explain``: the documentation's sections, found by the names and the words that errors have."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pathways_jupyter.actions.completion_values import values
from pathways_jupyter.actions.explain import explain
from pathways_jupyter.base import pages, project
from pathways_jupyter.base.errors import CapacityError, ConfigError
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.cli import main
from pathways_jupyter.commands.declaration import Source

DOCS = Path(__file__).parents[2] / "docs"


class Reader:
    def __init__(self, face=Face.TERMINAL):
        self.face = face


def shown(*topic, face=Face.TERMINAL):
    return explain(Reader(face), {"topic": topic})


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ("ConfigError", "configerror"),
        ("pathways_jupyter.base.errors.ConfigError", "configerror"),
        ("proxy image", "proxy-image"),
        ("max_lifetime", "max-lifetime"),
        ("--max-lifetime", "max-lifetime"),
        ("c.PathwaysJupyter.kubeconfig", "kubeconfig"),
        ("credentials", "credentials"),
        ("expired", "credentials"),
        ("expired credentials", "credentials"),
        ("unauthorized", "credentials"),
        ("forbidden", "permission"),
        ("Permission denied", "permission"),
        ("connection refused", "reachable"),
        ("unschedulable", "slices"),
        ("callbacks", "jax-client"),
        ("ImagePullBackOff", "sessionerror"),
        ("DATA_LOSS", "slices"),
    ],
)
def test_names_and_words_lead_to_a_section(words, topic):
    assert {each.topic for each in pages.find(words)} == {topic}
    assert {each["topic"] for each in map(vars, shown(*words.split()).value)} == {topic}


def test_a_word_of_several_sections_lists_them():
    listed = shown("pending").text
    assert re.search(r"^slices +Slices are not ready", listed, re.MULTILINE)
    assert re.search(r"^operator +", listed, re.MULTILINE)
    # A setting, and what goes wrong.
    assert {each.topic for each in shown("timeout").value} == {"timeout", "reachable"}
    assert {each.topic for each in shown("wait").value} == {"wait"}


def test_without_a_topic_all_are_listed_and_tab_offers_them():
    text = shown().text
    assert all(topic in text for topic in pages.topics())
    assert {"credentials", "configerror", "wait", "limits"} <= set(values(Source.TOPICS))


@pytest.mark.parametrize("topic", pages.topics())
def test_each_topic_is_shown_in_lines_of_a_terminal(topic):
    view = shown(topic)
    assert 0 < max(map(len, view.text.splitlines())) <= 100
    # No link to a place that cannot be reached from here, and no marks of Markdown.
    assert not re.search(r"\]\(|\)=$|^#+ |\*\*", view.text, re.MULTILINE), view.text


@pytest.mark.parametrize("page", pages.PAGES)
def test_what_a_link_names_can_be_read(page):
    for topic in {each.topic for each in pages.sections() if each.page == page}:
        view = shown(topic, face=Face.NOTEBOOK)
        source = view._repr_mimebundle_()["text/markdown"]
        for named in re.findall(r"`%pathways explain ([\w-]+)`\)", source):
            assert named in pages.topics()
        for path in re.findall(r" \(docs/([\w/-]+\.md)", source):
            assert (DOCS / path).exists()


def test_what_nothing_explains_is_refused_with_the_nearest_names():
    with pytest.raises(ConfigError, match="Nothing explains 'configeror'") as refused:
        shown("configeror")
    assert worded(refused.value.hint, Face.TERMINAL).startswith("Did you mean configerror")
    assert worded(refused.value.hint, Face.TERMINAL).endswith(" pathways-jupyter explain lists all topics.")
    with pytest.raises(ConfigError, match="Nothing explains 'xyzzy'"):
        shown("xyzzy")


def test_the_command_takes_several_words_and_prints_json():
    runner = CliRunner()
    assert "gcloud auth login" in runner.invoke(main, ["explain", "expired", "credentials"]).output
    assert '"topic": "credentials"' in runner.invoke(main, ["explain", "expired", "--json"]).output
    failed = runner.invoke(main, ["explain", "xyzzy"])
    assert (failed.exit_code, "Nothing explains 'xyzzy'." in failed.output) == (1, True)


def test_an_error_ends_in_the_command_that_explains_it_and_in_the_address_where_there_is_one(monkeypatch):
    error = CapacityError("All are taken.", hint="Wait.")
    assert error.advice(Face.NOTEBOOK) == "Wait. (more: %pathways explain capacityerror)"
    assert error.advice(Face.TERMINAL) == "Wait. (more: pathways-jupyter explain capacityerror)"
    monkeypatch.setattr(project, "REPOSITORY", "https://forge.test/us/it")
    page = "https://forge.test/us/it/blob/HEAD/docs/troubleshooting.md"
    assert error.advice(Face.SCRIPT) == f"Wait. (more: pathways-jupyter explain capacityerror, {page}#capacityerror)"
    assert f"{page}#capacityerror" in shown("capacityerror").text
    assert "(https://forge.test/us/it/blob/HEAD/docs/permissions.md)" in shown("permission").text
