"""Text files as users' editors and shells write them: each reader takes what the file's own tool takes."""

import json
import os
import shutil
import subprocess

import pytest
from recorded_shell import RecordedShell

from pathways_jupyter.actions import action_of
from pathways_jupyter.base import outgoing, setting_sources, text_files
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.colocated import sidecar_image
from pathways_jupyter.kube import kubeconfig
from pathways_jupyter.multihost import targets

CODING = "# -*- coding: latin-1 -*-\n"
WRITTEN = {
    "UTF-8": lambda text: text.encode(),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "PowerShell's": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "UTF-16, the other order": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "Latin-1": lambda text: text.encode("latin-1"),
    "Latin-1, and says so": lambda text: (CODING + text).encode("latin-1"),
    "an encoding that there is not": lambda text: b"# coding: klingon\n" + text.encode(),
}
TEXT = {"UTF-8", "UTF-8 with a mark", "PowerShell's", "UTF-16, the other order"}
CONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "Jörg"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "Jörg", "user": {"token": "t"}}],
}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    for name in ("HOME", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (tmp_path / "home").mkdir()


def reads(work):
    """Return what `work` returns; None if it refuses the file, in words for people."""
    try:
        return work()
    except PathwaysError as error:
        return None if error.hint and "codec" not in str(error) else error


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("indent", [None, 1], ids=["JSON", "YAML"])
def test_a_kubeconfig_is_read_as_kubectl_reads_it(tmp_path, written, indent):
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    file = tmp_path / "config"
    text = json.dumps(CONFIG, ensure_ascii=False, indent=indent)
    # A comment in front makes it YAML.
    file.write_bytes(WRITTEN[written](text if indent is None else f"# mine\n{text}\n"))
    line = ["kubectl", "--kubeconfig", str(file), "config", "view", "-o", "jsonpath={.contexts[0].context.user}"]
    theirs = subprocess.run(line, capture_output=True, text=True, check=False)
    ours = reads(lambda: kubeconfig.read((file,)))
    found = None if ours is None else ours.contexts["a"].fields["user"]
    assert found == (theirs.stdout if theirs.returncode == 0 else None)


@pytest.mark.parametrize("written", WRITTEN)
def test_requirements_are_read_as_pip_reads_them(tmp_path, written):
    (tmp_path / "requirements.txt").write_bytes(WRITTEN[written]("six==1.17.0  # Jörg\n"))
    made = reads(lambda: sidecar_image.plan(tmp_path / "requirements.txt", "0.10.0", folder=tmp_path / "image"))
    found = None if made is None else made.files["requirements.txt"]
    expected = {"Latin-1, and says so": f"{CODING}six==1.17.0  # Jörg\n"}.get(written, "six==1.17.0  # Jörg\n")
    assert found == (expected if written in TEXT | {"Latin-1, and says so"} else None)


@pytest.mark.parametrize("written", WRITTEN)
def test_hosts_profiles_and_manifests_are_text_or_refused(tmp_path, written):
    encoded, good = WRITTEN[written], written in TEXT or written.startswith("an encoding")
    (tmp_path / "hosts").write_bytes(encoded("# Jörg\na slice=0\nb slice=1\n"))
    hosts = reads(lambda: targets.from_hosts(str(tmp_path / "hosts")))
    assert (None if hosts is None else [each.address for each in hosts]) == (["a", "b"] if good else None)
    file = setting_sources.profiles_path()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encoded('[profiles.team]\nservice = "Jörg"\n'))
    profiles = reads(setting_sources.profiles)
    assert profiles == ({"team": {"service": "Jörg"}} if good else None)
    (tmp_path / "job.yaml").write_bytes(encoded("kind: Jörg\n"))
    with pytest.raises(ConfigError) as refused:
        action_of("job apply")(RecordedShell(), {"file": str(tmp_path / "job.yaml")})
    # One that was read fails later, because there is no cluster.
    assert ("job.yaml cannot be read" in str(refused.value)) != good


@pytest.mark.parametrize("written", WRITTEN)
def test_no_line_of_an_ignore_file_is_lost(tmp_path, written):
    root = tmp_path / "code"
    root.mkdir()
    for name in ("Jörg.txt", "main.py"):
        (root / name).touch()
    (root / ".pathwaysignore").write_bytes(WRITTEN[written]("Jörg.txt\n"))
    sent = reads(lambda: {each.path for each in outgoing.choose(root, (), (), [])})
    if written in TEXT or written.startswith("an encoding"):
        assert sent == {"main.py", ".pathwaysignore"}
    elif written.startswith("Latin-1"):
        # For git, a line is the bytes of a name, and this is no name there.
        assert sent == {"main.py", ".pathwaysignore", "Jörg.txt"}
    else:
        assert sent is None


def test_a_line_of_gitignore_is_the_bytes_of_a_name(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    for name in (b"J\xf6rg.txt", b"main.py"):
        (root / os.fsdecode(name)).touch()
    (root / ".gitignore").write_bytes(b"J\xf6rg.txt\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    words = ["git", "-C", str(root), "-c", "core.quotepath=false", "ls-files", "-z", "--others", "--exclude-standard"]
    theirs = {os.fsdecode(each) for each in subprocess.run(words, capture_output=True, check=True).stdout.split(b"\0")}
    shutil.rmtree(root / ".git")
    assert {each.path for each in outgoing.choose(root, (), (), [])} == theirs - {""} == {".gitignore", "main.py"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"\xff", "not text in UTF-8"), (b"\xff\xfea", "not text in UTF-16"), (b"a\0b", "NUL characters")],
)
def test_what_is_no_text_says_what_it_is_not(data, problem):
    with pytest.raises(ValueError, match=problem):
        text_files.decode(data)
