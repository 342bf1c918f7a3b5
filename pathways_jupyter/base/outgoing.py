"""Data that may leave this machine: the files of a directory that is sent, and lines of text that others can read.

All that packs files asks here, so that there is one list of what stays. The first that says anything of a file decides:

1. patterns of the command, and of ``.pathwaysignore`` files, where ``!PATTERN`` sends what would stay otherwise;
2. what is never meant: secrets, virtual environments, this machine's runtime files, the history of git;
3. ``.gitignore`` files, the closest first, as in git.

Only a pattern that ends with a file's name overrules 2.: ``!src/**`` sends no ``src/.env``, ``!.env`` does. The same is
true of a file with a private key, whatever its name is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir, jupyter_runtime_dir

from pathways_jupyter.base import ignore_rules, text_files
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.ignore_rules import Rules
from pathways_jupyter.base.text import absolute_path

SECRET, ENVIRONMENT, OUTSIDE, NO_FILE = "a secret", "a virtual environment", "a link out of the directory", "not a file"
IGNORING = ".pathwaysignore"
_SECRET_DIRECTORIES = (
    *(".ssh/", ".gnupg/", ".kube/", ".aws/", ".azure/", ".kaggle/", ".huggingface/", ".jupyter/", ".ipython/", ".pip/"),
    *(".config/gcloud/", ".config/gh/", ".config/pip/", ".config/rclone/"),
)
_SECRET_FILES = (
    *(".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials", ".boto", ".vault-token", ".*_history"),
    *(".env", ".env.*", ".envrc", "!.env.example", "!.env.sample", "!.env.template", ".docker/config.json"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "google_compute_engine"),
    *("kubeconfig", "*.kubeconfig", "application_default_credentials.json"),
)
_NOT_MEANT = (".git", "__pycache__/", ".ipynb_checkpoints/", "/multihost-runs/", ".cache/", ".local/share/jupyter/")
_NAMED_SECRETS = ("KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "NETRC", "DOCKER_CONFIG")
"""Variables with the paths of secrets."""
_PRIVATE_KEY = re.compile(
    # With what follows it, because programs that read keys have the line alone. In JSON a line ends with \n in letters.
    rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:\r?\n|\\n)(?:[A-Za-z0-9+/=]{32}|Proc-Type)"
    rb"|PuTTY-User-Key-File|:_authToken\s*=\s*[^$\s]"
)
KEY_BYTES = 16 * 1024
"""Bytes of a file's beginning that :func:`is_key` needs."""
_CREDENTIALS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^\s'\"/?#]*)@([^\s'\"?#]+)")
"""Scheme, user and the rest of a URL that has a user."""


@dataclass(frozen=True)
class Found:
    """One file, link or directory that is sent.

    Attributes:
      path: Relative to the directory, with ``/``.
      folder: Whether it is a directory; its content follows.
      link: The target of a link; empty for anything else.
      named: Whether a pattern of the user that ends with its name says that it is sent, whatever it is.
    """

    path: str
    folder: bool = False
    link: str = ""
    named: bool = False


@dataclass(frozen=True)
class LeftOut:
    """Files that stay here although neither the user nor git ignores them."""

    path: str
    reason: str


def directory(named: str = "") -> Path:
    """Return the directory that a command sends: the one that is named, or the current one.

    Raises:
      ConfigError: None is named, and the current one is the home directory or above it; or it is one of secrets.
    """
    home, here = Path.home().resolve(), absolute_path(named or ".").resolve()
    if not named and (here == home or here in home.parents):
        which = "your home directory" if here == home else "above your home directory"
        raise ConfigError(
            f"{here} is {which}, which is not sent unless it is named.",
            hint="Name the directory of your code with --dir, or change to it.",
        )
    if here.is_relative_to(home) and here != home:
        secrets, below_home = ignore_rules.read(_SECRET_DIRECTORIES), here.relative_to(home)
        if any(ignore_rules.ignored(f"{each.as_posix()}/", secrets) for each in (below_home, *below_home.parents)):
            raise ConfigError(f"{here} holds secrets, and is not sent.", hint="Name the directory of your code.")
    return here


def choose(root: Path, exclude: Sequence[str], own: Iterable[Path], left_out: list[LeftOut]) -> Iterator[Found]:
    """Yield what is sent of `root`, sorted; directories that stay are not entered.

    Args:
      root: A directory, resolved.
      exclude: The command's patterns, as in .gitignore.
      own: Files and directories that the command itself writes.
      left_out: Receives what stays here and would be missed, or must be known to stay.

    Raises:
      OSError: A directory cannot be read.
    """
    return _Choice(root, exclude, own, left_out).below("")


def is_key(beginning: bytes) -> bool:
    """Return whether a file that begins like this has a private key or a token."""
    return _PRIVATE_KEY.search(beginning) is not None


def secret_in(line: str) -> str:
    """Return the first URL in `line` with a password or a token before its host, without them; empty if there is none.

    The user of ``ssh://git@host`` is no secret.
    """
    for scheme, user, rest in _CREDENTIALS.findall(line):
        if ":" in user or not scheme.lower().endswith("ssh"):
            return f"{scheme}://{rest}"
    return ""


class _Choice:
    """One walk through a directory."""

    def __init__(self, root: Path, exclude: Sequence[str], own: Iterable[Path], left_out: list[LeftOut]) -> None:
        self._root, self._left_out = root, left_out
        self._exclude, self._not_meant = ignore_rules.read(exclude, enters=True), ignore_rules.read(_NOT_MEANT)
        self._secret_directories = ignore_rules.read(_SECRET_DIRECTORIES)
        self._secret_files = ignore_rules.read(_SECRET_FILES)
        self._own = {os.path.realpath(each) for each in (*map(str, own), jupyter_runtime_dir())}
        # Those of the home directory by their whole paths too: ~/.config may be sent, which has some of them.
        own_home = (f"~/{each}" for each in _SECRET_DIRECTORIES)
        named = (jupyter_config_dir(), *own_home, *(os.environ.get(name, "") for name in _NAMED_SECRETS))
        self._named_secrets = {
            os.path.realpath(os.path.expanduser(each)) for names in named for each in names.split(os.pathsep) if each
        }

    def below(self, folder: str, listed: Rules = (), unwanted: Rules = ()) -> Iterator[Found]:
        """Yield what is sent of `folder`.

        Args:
          listed: The rules of ``.pathwaysignore`` above it.
          unwanted: Those of ``.gitignore``.
        """
        here = self._root / folder
        listed, unwanted = (*listed, *_read(here, folder, IGNORING)), (*unwanted, *_read(here, folder, ".gitignore"))
        for each in sorted(os.scandir(here), key=lambda entry: entry.name):
            path = f"{folder}/{each.name}" if folder else each.name
            is_folder = each.is_dir(follow_symlinks=False)
            pattern = f"{path}/" if is_folder else path
            users = ignore_rules.decisive(pattern, (*listed, *self._exclude))
            named = users is not None and not users.ignores and users.is_name
            if users.ignores if users else ignore_rules.ignored(pattern, unwanted):
                continue
            if not named and self._stays(each, pattern):
                continue
            if each.is_symlink():
                if (target := self._target(folder, each.path)) is None:
                    self._left_out.append(LeftOut(path, OUTSIDE))
                else:
                    yield Found(path, link=target, named=named)
            elif is_folder:
                yield Found(path, folder=True, named=named)
                yield from self.below(path, listed, unwanted)
            elif each.is_file(follow_symlinks=False):
                yield Found(path, named=named)
            else:
                self._left_out.append(LeftOut(path, NO_FILE))

    def _stays(self, entry: os.DirEntry[str], pattern: str) -> bool:
        """Return whether something is never meant to be sent."""
        if ignore_rules.ignored(pattern, self._not_meant) or entry.path in self._own:
            return True
        is_folder = pattern.endswith("/")
        if is_folder and any(os.path.exists(f"{entry.path}/{mark}") for mark in ("pyvenv.cfg", "conda-meta")):
            self._left_out.append(LeftOut(pattern, ENVIRONMENT))
            return True
        secrets = self._secret_directories if is_folder else self._secret_files
        if ignore_rules.ignored(pattern, secrets) or entry.path in self._named_secrets:
            self._left_out.append(LeftOut(pattern, SECRET))
            return True
        return False

    def _target(self, folder: str, path: str) -> str | None:
        """Return where a link leads on another machine; None if that is out of the directory."""
        target, here = os.readlink(path), self._root / folder
        inside = os.path.relpath(os.path.realpath(os.path.join(here, target)), self._root)
        if inside == ".." or inside.startswith("../"):
            return None
        # By way of names outside, such as that of the directory itself, it would lead elsewhere on a host.
        if os.path.isabs(target) or os.path.normpath(os.path.join(folder, target)).startswith(".."):
            return os.path.relpath(os.path.join(self._root, inside), here)
        return target


def _read(here: Path, folder: str, name: str) -> Rules:
    file = here / name
    if not file.is_file():
        return ()
    try:
        lines = text_files.read(file, names_files=True).split("\n")
    except ValueError as error:
        # Its lines may name secrets.
        raise ConfigError(f"{file} cannot be read: {error}.", hint="Write it in UTF-8, or remove it.") from error
    return ignore_rules.read(lines, folder, enters=name == IGNORING)
