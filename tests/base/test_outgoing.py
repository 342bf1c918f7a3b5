"""Files of a directory that may leave this machine."""

import shutil
import subprocess

import pytest

from pathways_jupyter.base import outgoing
from pathways_jupyter.base.errors import ConfigError

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "b" * 64


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "home" / "runtime"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def root(home):
    (home / "code").mkdir()
    return home / "code"


def write(root, **texts):
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def chosen(root, *exclude, own=()):
    left = []
    found = {each.path for each in outgoing.choose(root, exclude, own, left) if not each.folder}
    return found, {each.path for each in left}


@pytest.mark.parametrize("here", [".", "..", "/"])
def test_the_home_directory_and_those_above_it_are_sent_only_by_name(here, home, monkeypatch):
    monkeypatch.chdir(home / here)
    with pytest.raises(ConfigError, match="which is not sent unless it is named"):
        outgoing.directory()
    assert outgoing.directory("~") == home


def test_a_directory_of_secrets_is_not_sent_by_name_either(home):
    (home / ".config" / "gcloud" / "logs").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds secrets"):
        outgoing.directory("~/.config/gcloud/logs")


def test_secrets_stay_whatever_git_says_and_are_named(root):
    write(root, **{".env": "", ".env.example": "", "sub/.netrc": "", "sub/.ssh/config": "", "a.py": ""})
    write(root, **{".gitignore": "!.env\n!.netrc\n"})
    assert chosen(root) == ({".gitignore", ".env.example", "a.py"}, {".env", "sub/.netrc", "sub/.ssh/"})


def test_secrets_of_the_home_directory_stay_also_if_a_directory_below_it_is_sent(home):
    write(home / ".config", **{"gcloud/credentials.db": "", "gh/hosts.yml": "", "app/settings": ""})
    assert chosen(home / ".config") == ({"app/settings"}, {"gcloud/", "gh/"})


def test_what_git_ignores_needs_no_word(root):
    write(root, **{".env": "", ".gitignore": ".env\n"})
    assert chosen(root) == ({".gitignore"}, set())


def test_the_user_decides_before_anything_else(root):
    write(root, **{".env": "", "data.bin": "", ".gitignore": "*.bin\n", ".pathwaysignore": "!.env\n!data.bin\n"})
    assert chosen(root)[0] >= {".env", "data.bin"}
    assert chosen(root, ".env")[0] >= {"data.bin"}
    assert ".env" not in chosen(root, ".env")[0]


def test_a_list_of_what_is_sent_sends_no_secret_and_nothing_that_it_excludes(root):
    kept = {"src/.env": "", "src/sub/.netrc": "", "src/.ssh/config": "", "src/.git/config": "", "src/__pycache__/a": ""}
    write(root, **kept, **{"notes": "", "other/a": "", "src/a.py": "", "src/sub/b": "", "src/private/c": ""})
    write(root, **{".gitignore": "b\n", ".pathwaysignore": "*\n!src/**\nprivate/\n"})
    assert chosen(root) == ({"src/a.py", "src/sub/b"}, {"src/.env", "src/sub/.netrc", "src/.ssh/"})
    assert chosen(root, "*", "!src/**", "private", "!src/.env")[0] == {"src/a.py", "src/sub/b", "src/.env"}


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize(
    "lines",
    [
        ["*", "!src/", "!src/**", "private/"],
        ["/*", "!/src", "*.log", "!src/sub/"],
        ["!src/**", "a.*", "!/a.[lp]?", "**/sub/*", "!b"],
        ["src/*", "!src/sub", "[!s]*/", "!**/data/**", "x\\ ", "# a"],
        ["*", "!src/**", "!*/", "!a.py", "/**/private/c"],
        ["!", "/", "[z-a]", "[", "a\\", "data/**/deep", "s?c/a.py"],
    ],
)
def test_patterns_are_read_as_in_git(root, lines):
    paths = ["a.py", "a.log", "b", "x ", "src/a.py", "src/a.log", "src/sub/a.py", "src/sub/b", "src/private/c"]
    write(root, **dict.fromkeys([*paths, "data/x", "data/a/deep/y", "data/src/sub/a.py", "lib/data/e"], ""))
    write(root, **{".gitignore": "\n".join(lines)})
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    untracked = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    assert chosen(root)[0] == set(untracked.split("\0")) - {""}


def test_environments_caches_and_files_that_this_machine_is_writing_stay(root, home, monkeypatch):
    write(root, **{"mine/pyvenv.cfg": "", "conda/conda-meta/history": "", ".cache/token": "", "out/log": "", "a": ""})
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(root / "runtime"))
    write(root, **{"runtime/pathways/multihost/run.json": "", "keys/robot.json": ""})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(root / "keys" / "robot.json"))
    assert chosen(root, own=[root / "out"]) == ({"a"}, {"conda/", "mine/", "keys/robot.json"})


def test_a_private_key_is_known_by_its_content():
    assert outgoing.is_key(KEY.encode())
    assert outgoing.is_key(b'{"private_key": "-----BEGIN PRIVATE KEY-----\\n' + b"c" * 40)
    assert not outgoing.is_key(b'if "-----BEGIN PRIVATE KEY-----" in text:\n    pass\n')


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--extra-index-url https://oauth2accesstoken:ya29@x.dev/simple/", "https://x.dev/simple/"),
        ("pkg @ git+https://ghp_abc@github.com/a/b.git@v1", "git+https://github.com/a/b.git@v1"),
        ("--index-url https://me:p@ss@[x/simple?token=a", "https://[x/simple"),
        ("pkg @ git+ssh://git@github.com/a/b.git", ""),
        ("six==1.17.0  # see https://pypi.org/@someone", ""),
    ],
)
def test_urls_with_a_password_or_a_token_are_found_and_shown_without_it(line, found):
    assert outgoing.secret_in(line) == found
