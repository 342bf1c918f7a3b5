import os
from pathlib import Path

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube import kubeconfig

TWO_CONTEXTS = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c1, cluster: {server: "https://one.example:6443", certificate-authority: pki/ca.crt}}
contexts:
- {name: one, context: {cluster: c1, user: u1, namespace: research}}
- {name: two, context: {cluster: c2, user: u2}}
users:
- {name: u1, user: {tokenFile: token}}
"""

OTHER_FILE = """
current-context: two
clusters:
- {name: c1, cluster: {server: "https://ignored.example"}}
- {name: c2, cluster: {server: "https://two.example"}}
users:
- {name: u2, user: {token: secret}}
"""


@pytest.fixture
def files(tmp_path):
    first, second = tmp_path / "a" / "config", tmp_path / "b" / "config"
    for path, text in ((first, TWO_CONTEXTS), (second, OTHER_FILE)):
        path.parent.mkdir()
        path.write_text(text)
    return first, second


def test_the_first_file_that_names_something_defines_it(files):
    merged = kubeconfig.read(files)
    assert merged.current == "one"
    assert merged.context().cluster.text("server") == "https://one.example:6443"
    assert merged.context("two").cluster.text("server") == "https://two.example"


def test_paths_in_a_file_are_relative_to_that_file(files):
    context = kubeconfig.read(files).context("one")
    assert context.cluster.text("certificate-authority") == str(files[0].parent / "pki/ca.crt")
    assert context.user.text("tokenFile") == str(files[0].parent / "token")
    assert context.namespace == "research"


def test_the_environment_lists_several_files_and_missing_ones_are_skipped(files, tmp_path):
    listed = os.pathsep.join([str(files[0]), str(tmp_path / "missing"), str(files[1])])
    assert kubeconfig.paths(environ={"KUBECONFIG": listed}) == files


def test_without_a_setting_the_file_in_the_home_directory_is_read(tmp_path):
    assert kubeconfig.paths(environ={"HOME": str(tmp_path)}) == ()
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(TWO_CONTEXTS)
    assert kubeconfig.paths(environ={"HOME": str(tmp_path)}) == (tmp_path / ".kube" / "config",)


def test_a_kubeconfig_in_yaml_flow_style_is_read_too(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],\n"
        " clusters: [{name: c, cluster: {server: 'https://x'}}], users: [{name: u, user: {token: t}}]}  # a comment"
    )
    assert kubeconfig.read((path,)).context().user.text("token") == "t"


def test_a_file_that_was_asked_for_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="There is no kubeconfig"):
        kubeconfig.paths(str(tmp_path / "missing"))


def test_an_unknown_context_is_reported_with_those_that_exist(files):
    with pytest.raises(ConfigError, match="no context 'three'") as raised:
        kubeconfig.read(files).context("three")
    assert "one, two" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("current-context: [", "not a usable kubeconfig"),
        ("- a\n- b\n", "not a mapping"),
        ("contexts: {a: 1}", "not a list of named entries"),
        ("contexts:\n- context: {cluster: c}\n", "not a list of named entries"),
        ("{broken", "not a usable kubeconfig"),
        ("[" * 100_000, "not a usable kubeconfig"),
        ('{"a":' * 100_000, "not a usable kubeconfig"),
        ("current-context: 2020-13-45", "not a usable kubeconfig"),
        ("&a [*a, *b]", "not a usable kubeconfig"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, problem):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as raised:
        kubeconfig.read((path,))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("contexts:\n- {name: a, context: {cluster: c}}", "sets no current context"),
        ("current-context: a\ncontexts:\n- {name: a, context: {cluster: c}}", "has no server"),
        (
            "current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n"
            "clusters:\n- {name: c, cluster: {server: 'https://x'}}",
            "user 'u', which is not in",
        ),
    ],
)
def test_a_context_that_points_nowhere_is_refused(tmp_path, text, problem):
    path = Path(tmp_path / "config")
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        kubeconfig.read((path,)).context()


def test_an_empty_file_has_no_contexts(tmp_path):
    path = tmp_path / "config"
    path.write_text("")
    assert kubeconfig.read((path,)).contexts == {}
