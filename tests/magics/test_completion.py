"""Completions on a line of %pathways."""

import json

import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from session_records import new_record

from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.magics.completion import complete, matcher
from pathways_jupyter.session import registry


def offered(text):
    return complete(text, MAGIC)[1]


def test_commands_come_first():
    assert offered("") == list(dict.fromkeys(name.partition(" ")[0] for name in MAGIC))
    assert "apply" in offered("job ")
    assert offered("dis") == ["disconnect"]


def test_a_group_offers_its_commands_and_they_their_options():
    assert offered("service ") == ["deploy", "show", "wait", "delete"]
    assert offered("service de") == ["deploy", "delete"]
    assert "--gcs-bucket" in offered("service deploy mine ")
    assert offered("service deploy mine --tpu tpuv5e:4x4") == ["tpuv5e:4x4="]
    assert offered("service nonsense ") == []


def test_options_of_the_command_are_offered_once():
    assert "--tpu" in offered("connect ")
    assert "--tpu" not in offered("connect --tpu tpuv6e:2x2=2 ")
    assert "--proxy-options" in offered("connect --proxy-options a ")
    assert offered("connect --pro")[:4] == ["--project", "--profile", "--proxy-image", "--proxy-options"]
    assert offered("connect --proxy-no") == ["--proxy-node-selector"]


def test_instance_types_are_offered_version_first():
    assert "tpuv6e:" in offered("connect --tpu ")
    assert offered("connect --tpu tpuv6e:4x") == ["tpuv6e:4x4=", "tpuv6e:4x8="]
    assert complete("connect --tpu=tpuv6e:2x2=2,tpuv6e:2x4", MAGIC) == ("tpuv6e:2x4", ["tpuv6e:2x4="])


def test_contexts_come_from_the_kubeconfig_that_the_line_names(tmp_path):
    file = tmp_path / "config"
    file.write_text(json.dumps({"contexts": [{"name": "gke-a", "context": {}}, {"name": "kind", "context": {}}]}))
    assert offered(f"connect --kubeconfig {file} --context g") == ["gke-a"]


def test_files_are_offered_where_a_file_is_wanted(tmp_path, monkeypatch):
    for name in ("config", "config.d", "other", ".hidden"):
        (tmp_path / name).mkdir() if name.endswith(".d") else (tmp_path / name).touch()
    assert offered(f"connect --kubeconfig {tmp_path}/co") == [f"{tmp_path}/config", f"{tmp_path}/config.d/"]
    monkeypatch.chdir(tmp_path)
    assert offered("connect --kubeconfig ") == ["config", "config.d/", "other"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert offered("connect --kubeconfig ~/.h") == ["~/.hidden"]
    assert offered("connect --kubeconfig /nowhere/at/all") == []


def test_profiles_come_from_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "pathways.toml").write_text('[profiles.team]\npathways_service = "shared"\n')
    assert offered("connect --profile ") == ["team"]
    assert offered("connect --service ") == ["shared"]


def test_the_services_of_sessions_are_offered_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    for session, service in (("aa", "svc-pathways-head-0-0.svc:29001"), ("bb", "10.0.0.1:29001")):
        registry.write(new_record(id=session, service=service))
    named = [each for each in offered("service show ") if not each.startswith("-")]
    assert named == ["10.0.0.1:29001", "svc"]


def test_words_are_offered_by_their_place():
    assert offered("logs w") == ["worker"]
    assert offered("help sess") == ["sessions"]
    assert offered("explain creden") == ["credentials"]
    assert "rm" not in offered("logs worker ")


@pytest.mark.parametrize("text", ["nonsense ", "connect --profile ", "connect --kubeconfig /nowhere --context "])
def test_nothing_known_offers_nothing(text, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert offered(text) == []


def test_ipython_completes_the_line_in_place():
    completer = IPCompleter(shell=InteractiveShell())
    completer.custom_matchers.append(matcher("%pathways", MAGIC))
    for before in ("", "x = 1\n", "found = "):
        line = f"{before}%pathways connect --tpu tpuv6e:2x2=1,tpuv5e:4x"
        with provisionalcompleter():
            found = list(completer.completions(line, len(line)))
        assert [line[: each.start] + each.text for each in found] == [
            f"{before}%pathways connect --tpu tpuv6e:2x2=1,{each}" for each in ("tpuv5e:4x4=", "tpuv5e:4x8=")
        ]


@pytest.mark.parametrize(
    "text", ["connect --context ", "connect --context x", "logs worker ", "connect --max-lifetime ", "nonsense "]
)
def test_where_nothing_is_known_ipython_offers_nothing_of_its_own(text, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    completer = IPCompleter(shell=InteractiveShell())
    completer.custom_matchers.append(matcher("%pathways", MAGIC))
    line = f"%pathways {text}"
    with provisionalcompleter():
        found = list(completer.completions(line, len(line)))
    completed = {line[: each.start] + each.text + line[each.end :] for each in found}
    assert completed <= {line} or all(each.startswith(f"{line}-") for each in completed)


def test_a_variable_that_is_called_as_the_magic_is_completed_by_python():
    completer = IPCompleter(shell=InteractiveShell())
    completer.custom_matchers.append(matcher("%pathways", MAGIC))
    with provisionalcompleter():
        assert [each.text for each in completer.completions("pathways or Tru", 15)] == ["True"]


def test_help_offers_the_commands_of_a_group():
    assert offered("help job s") == ["show", "suspend"]
    assert offered("help service ") == ["deploy", "show", "wait", "delete"]
    assert offered("help slices ") == []


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("elastic ", ["inject", "heal", "export", "--metric", "--help"]),
        ("elastic heal -", ["--yes", "--help"]),
        ("elastic export -", ["--help"]),
        ("elastic inject drain-node 1 -", ["--for", "--after", "--at-step", "--yes", "--help"]),
        ("elastic inject s", ["slice-down"]),
    ],
)
def test_a_group_with_a_command_of_its_name_offers_both(text, flags):
    assert offered(text) == flags
