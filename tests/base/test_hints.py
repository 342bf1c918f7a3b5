"""Hints: written once, read as Python in a script, as magics in a notebook, and as commands in a terminal."""

import ast
import json
import re
import string
from pathlib import Path

import pytest

import pathways_jupyter
from pathways_jupyter.base import sentences
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import Face, advice, option, word, worded
from pathways_jupyter.commands.declaration import ValueKind
from pathways_jupyter.commands.session import CONNECT
from pathways_jupyter.commands.tables import MAGIC, TERMINAL

PACKAGE = Path(pathways_jupyter.__file__).parent


@pytest.mark.parametrize(
    ("template", "in_notebook", "in_sidebar"),
    [
        ("Check {namespace} and {context}.", "Check --namespace and --context.", "Check “Namespace” and “Cluster”."),
        ("Point {kubeconfig} elsewhere.", "Point --kubeconfig elsewhere.", "Point KUBECONFIG elsewhere."),
        ("Choose {context}: a, b.", "Choose --context: a, b.", "Choose “Cluster”: a, b."),
        (
            "{connect:--local} starts it.",
            "%pathways connect --local starts it.",
            "%pathways connect --local starts it.",
        ),
        ("Check {proxy_image}.", "Check --proxy-image.", "Check --proxy-image."),
    ],
)
def test_the_sidebar_speaks_of_the_fields_of_its_dialog(template, in_notebook, in_sidebar):
    assert advice(template) == in_notebook
    assert worded(advice(template), Face.SIDEBAR) == in_sidebar


@pytest.mark.parametrize(
    ("template", "in_notebook", "in_script"),
    [
        ("{wait}", "--wait", "wait=True"),
        ("{wait:600}", "--wait 600", "wait=600"),
        ("{tpu:tpuv6e:2x2=2}", "--tpu tpuv6e:2x2=2", 'tpu="tpuv6e:2x2=2"'),
        ("{local}", "--local", "local=True"),
        ("{no_relay}", "--no-relay", "relay=False"),
        ("{cluster}", "--cluster", "cluster="),
        ("{proxy_image}", "--proxy-image", "proxy_image="),
        ("{lease_seconds:60}", "--lease-seconds 60", "lease_seconds=60"),
        ("{reconnect}", "%pathways reconnect", "session.reconnect()"),
        ("{disconnect}", "%pathways disconnect", "session.disconnect()"),
        ("{connect}", "%pathways connect", "pathways_jupyter.connect()"),
        ("{connect:--help}", "%pathways connect --help", "help(pathways_jupyter.connect)"),
        (
            "{connect:--local --tpu tpuv6e:2x2=2}",
            "%pathways connect --local --tpu tpuv6e:2x2=2",
            'pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=2")',
        ),
        ("{logs:worker 1}", "%pathways logs worker 1", "pathways-jupyter logs worker 1"),
        ("{job_show:train}", "%pathways job show train", "pathways-jupyter job show train"),
        ("{colocated_restart}", "%colocated restart", "colocated.restart()"),
        ("kubectl get jobsets --context=a", "kubectl get jobsets --context=a", "kubectl get jobsets --context=a"),
    ],
)
def test_in_a_script_a_hint_speaks_python(template, in_notebook, in_script):
    assert worded(advice(template), Face.NOTEBOOK) == in_notebook
    assert worded(advice(template), Face.SCRIPT) == in_script


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{wait}", "wait=True"),
        ("{tpu:tpuv6e:2x2=2}", 'tpu="tpuv6e:2x2=2"'),
        ("{connect:--local}", "pathways_jupyter.connect(local=True)"),
        ("{connect:--help}", "help(pathways_jupyter.connect)"),
        ("{reconnect}", "%pathways reconnect"),
        ("{logs:worker 1}", "%pathways logs worker 1"),
        ("{explain:capacityerror}", "%pathways explain capacityerror"),
        ("{colocated_restart}", "%colocated restart"),
    ],
)
def test_a_call_in_a_notebook_has_keywords_and_magics(template, said):
    assert worded(advice(template), Face.CALL) == said


@pytest.mark.parametrize(
    ("template", "in_terminal"),
    [
        ("{logs:proxy}", "pathways-jupyter logs proxy"),
        ("{disconnect}", "pathways-jupyter sessions disconnect"),
        ("{reconnect}", "%pathways reconnect (in its notebook)"),
        ("{connect:--local}", "%pathways connect --local (in a notebook)"),
        ("{colocated_hosts}", "%colocated hosts"),
        ("{context}", "--context"),
    ],
)
def test_in_a_terminal_a_hint_speaks_of_commands(template, in_terminal):
    assert worded(advice(template), Face.TERMINAL) == in_terminal


@pytest.mark.parametrize("name", ["{wait}", "{name}", "{0}", "{", "}", "{{}}", "%s", "{name.__class__}", "{name!r}"])
def test_what_a_user_has_named_is_never_read_as_a_placeholder(name):
    hint = advice("{job_show:{name}} shows {name} {unclosed; {wait} waits.", name=name)
    for face, wait in ((Face.NOTEBOOK, "--wait"), (Face.SCRIPT, "wait=True")):
        shown = "%pathways" if face is Face.NOTEBOOK else "pathways-jupyter"
        assert worded(hint, face) == f"{shown} job show {name} shows {name} {{unclosed; {wait} waits."


def test_a_hint_names_the_cluster_that_was_named():
    inner = advice("{job_logs:{name} {first}}", name="train", first="data")
    hint = advice(
        "{inner}, {job_list}; {connect:--local}, {job_new:NAME}. Check {namespace} of {slices}.",
        inner=inner,
        slices="3",
    )
    placed = sentences.with_options(hint, "--context 'a b'")
    assert worded(placed, Face.TERMINAL) == (
        "pathways-jupyter job logs train data --context 'a b', pathways-jupyter job list --context 'a b'; "
        "%pathways connect --local (in a notebook), pathways-jupyter job new NAME. Check --namespace of 3."
    )
    assert sentences.with_options(hint, "") == hint
    assert sentences.with_options("{job_list}", "--local") == "{job_list}"
    for face in (Face.NOTEBOOK, Face.TERMINAL, Face.SCRIPT):
        assert worded(advice("{lab_down} {clean}"), face) == "pathways-jupyter lab down pathways-jupyter clean"


def test_a_hint_crosses_processes_as_a_template_with_its_values():
    inner = advice("{reconnect} gets a new one of {name}.", name="{tpu}")
    hint = advice("{inner} Or leave out {it}.", inner=inner, it=option("keep"))
    received = sentences.from_json(json.loads(json.dumps(sentences.to_json(hint))))
    assert received == "%pathways reconnect gets a new one of {tpu}. Or leave out --keep."
    assert worded(received, Face.SCRIPT) == "session.reconnect() gets a new one of {tpu}. Or leave out keep=."


def test_a_traceback_shows_the_hint_in_python_and_ipython_shows_it_as_a_magic():
    error = SessionError("It is lost.", hint=advice("{reconnect} gets a new one."))
    in_python = "session.reconnect() gets a new one. (more: pathways-jupyter explain sessionerror)"
    in_ipython = "%pathways reconnect gets a new one. (more: %pathways explain sessionerror)"
    assert error.__notes__ == [in_python]
    assert f"  {in_ipython}" in error._render_traceback_()
    error.face = Face.SCRIPT
    assert f"  {in_python}" in error._render_traceback_()


def test_an_error_without_a_hint_is_one_line():
    assert len(SessionError("It is lost.")._render_traceback_()) == 1


def _said():
    """Yield each call of advice() in the package, with its place."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "pathways_jupyter.base.sentences import" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "advice":
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def _names(template):
    for _, name, arguments, _ in string.Formatter().parse(template):
        if name is not None:
            yield name
            yield from _names(arguments or "")


def test_each_placeholder_is_a_value_a_command_or_an_option():
    options = {each.flag for each in CONNECT.options}
    commands = {each.partition(" ")[0] for each in (*MAGIC, *TERMINAL)}
    count = 0
    for where, node in _said():
        if not isinstance(node.args[0], ast.Constant):
            assert where.startswith("base/sentences.py"), where
            continue
        names = set(_names(node.args[0].value))
        values = {each.arg for each in node.keywords}
        assert values <= names, where
        for name in names - values:
            count += 1
            if (typed := word(name, "", Face.NOTEBOOK)).startswith("--"):
                assert typed in options, (where, name)
            elif not name.startswith("colocated_"):
                assert name.partition("_")[0] in commands, (where, name)
    assert count > 80


def test_an_option_without_a_value_becomes_true_in_a_script():
    for each in CONNECT.options:
        if each.kind is ValueKind.FLAG and each.flag == f"--{each.name}":
            assert word(each.name, "", Face.SCRIPT) == f"{each.name}=True"


@pytest.mark.thorough
def test_what_names_a_magic_or_an_option_of_connect_is_advice():
    """A hint that is a plain text is the same in every face."""
    # Every command that asks has --yes.
    own = [each.flag for each in CONNECT.options if each.flag != "--yes"]
    flags = re.compile(rf"%pathways |(?:{'|'.join(own)})\b(?!-)")
    plain = (ast.Constant, ast.JoinedStr)
    found = []
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE)
        if where.parts[0] in {"cli", "local", "magics", "multihost", "render", "widgets"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint" and isinstance(node.value, plain):
                text = re.sub(r"(kubectl|gcloud|pathways-jupyter) [^;,]*", "", ast.unparse(node.value))
                if flags.search(text):
                    found.append(f"{where}:{node.value.lineno}: {text}")
    assert found == []


def test_messages_name_no_flag_and_no_magic():
    """They are the same in every face; what to type is the hint's."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if {"local", "bench", "remote", "cli", "magics"} & set(path.relative_to(PACKAGE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error") and node.args:
                text = ast.unparse(node.args[0])
                if "worded(" in text:
                    continue
                if " --" in text or "%pathways" in text or "'--" in text:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []
