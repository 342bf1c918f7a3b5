"""Hints: written once, read as Python in a script, as magics in a notebook, and as commands in a terminal."""

import ast
from pathlib import Path

import pytest

import pathways_jupyter
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.wording import Face, worded


@pytest.mark.parametrize(
    ("hint", "in_sidebar"),
    [
        ("Check --namespace and --context, or ask.", "Check “Namespace” and “Cluster”, or ask."),
        ("Fix it, or point --kubeconfig elsewhere.", "Fix it, or point KUBECONFIG elsewhere."),
        ("Choose one with --context: a, b.", "Choose one with “Cluster”: a, b."),
        ("Start it: %pathways connect --local.", "Start it: %pathways connect --local."),
        ("kubectl get jobsets --context=a", "kubectl get jobsets --context=a"),
    ],
)
def test_the_sidebar_speaks_of_the_fields_of_its_dialog(hint, in_sidebar):
    assert worded(hint, Face.SIDEBAR) == in_sidebar


@pytest.mark.parametrize(
    ("hint", "in_script"),
    [
        ("Add --wait to get them.", "Add wait=True to get them."),
        ("Wait longer: --wait 600.", "Wait longer: wait=600."),
        ("For example: --tpu tpuv6e:2x2=2.", 'For example: tpu="tpuv6e:2x2=2".'),
        ("Ask for --tpu tpuv6e:2x2=N, with N up to 2.", 'Ask for tpu="tpuv6e:2x2=N", with N up to 2.'),
        (
            "Use --local here, --cluster/--project/--region for GKE.",
            "Use local=True here, cluster=/project=/region= for GKE.",
        ),
        ("Check --proxy-image, or leave it out.", "Check proxy_image=, or leave it out."),
        ("Check --namespace and --context, or ask.", "Check namespace= and context=, or ask."),
        ("Fix it, or point --kubeconfig elsewhere.", "Fix it, or point kubeconfig= elsewhere."),
        ("For example: --lease-seconds 60.", "For example: lease_seconds=60."),
        ("With --pathways-service.", "With service=."),
        (
            "%pathways reconnect gets a new one, %pathways disconnect ends it.",
            "session.reconnect() gets a new one, session.disconnect() ends it.",
        ),
        ("%pathways connect --help shows how.", "help(pathways_jupyter.connect) shows how."),
        (
            "%pathways connect --local --tpu tpuv6e:2x2=2 needs none.",
            'pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=2") needs none.',
        ),
        ("%pathways logs proxy shows what it says.", "pathways-jupyter logs proxy shows what it says."),
        ("See their log: %pathways logs worker 1.", "See their log: pathways-jupyter logs worker 1."),
        ("%colocated hosts lists them.", "colocated.hosts() lists them."),
        ("%colocated restart ends it.", "colocated.restart() ends it."),
        (
            "Ask for: kubectl create role x --verb=get --namespace=team.",
            "Ask for: kubectl create role x --verb=get --namespace=team.",
        ),
        (
            "Or gcloud container clusters get-credentials C --region R --project P.",
            "Or gcloud container clusters get-credentials C --region R --project P.",
        ),
        ("Run pathways-jupyter local up --sidecar.", "Run pathways-jupyter local up --sidecar."),
        ("Use another --jax-version.", "Use another --jax-version."),
    ],
)
def test_in_a_script_a_hint_speaks_python(hint, in_script):
    assert worded(hint, Face.SCRIPT) == in_script
    assert worded(hint, Face.NOTEBOOK) == hint


@pytest.mark.parametrize(
    ("hint", "in_terminal"),
    [
        ("%pathways logs proxy shows more.", "pathways-jupyter logs proxy shows more."),
        ("%pathways slices shows who holds them.", "pathways-jupyter slices shows who holds them."),
        ("%pathways disconnect ends it.", "pathways-jupyter sessions disconnect ends it."),
        ("%pathways connect makes one.", "%pathways connect (in a notebook) makes one."),
        ("Choose another --context.", "Choose another --context."),
    ],
)
def test_in_a_terminal_a_hint_speaks_of_commands(hint, in_terminal):
    assert worded(hint, Face.TERMINAL) == in_terminal


def test_a_traceback_shows_the_hint_in_python_and_ipython_shows_it_as_a_magic():
    error = PathwaysError("It is lost.", hint="%pathways reconnect gets a new one.")
    assert error.__notes__ == ["session.reconnect() gets a new one."]
    assert "  %pathways reconnect gets a new one." in error._render_traceback_()
    error.face = Face.SCRIPT
    assert "  session.reconnect() gets a new one." in error._render_traceback_()


def test_messages_name_no_flag_and_no_magic():
    """They are the same in every face; what to type is the hint's."""
    package = Path(pathways_jupyter.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        if {"local", "bench", "remote", "cli", "magics"} & set(path.relative_to(package).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error") and node.args:
                text = ast.unparse(node.args[0])
                if "worded(" in text:
                    continue
                if " --" in text or "%pathways" in text or "'--" in text:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []
