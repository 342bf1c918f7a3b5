"""The user's requirements of a sidecar image, checked before an image is built: the build sees this one file only."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pathways_jupyter.base import outgoing
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import some
from pathways_jupyter.service.images import Versions

_COMMENT = re.compile(r"(^|\s+)#.*")
_OTHER_FILE = re.compile(r"(-r|-c|--requirements?|--constraints?)(?=[\s=]|[^-\s])")
_EDITABLE = re.compile(r"(-e|--editable)\b")
_LOCAL = re.compile(r"(\.{1,2}/|/|~|file:)|[^:]*\.(whl|zip|tar\.gz)$|\.{1,2}$", re.IGNORECASE)
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read(path: Path, sidecar: Versions) -> str:
    """Return the text of a requirements file that can be installed on a sidecar, as far as that is known here.

    Raises:
      ConfigError: It cannot be read, has what the build lacks or must not keep, or contradicts the sidecar.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Name a file of requirements.") from error
    encoding = next((each for mark, each in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8.", hint="Name a file of requirements.") from error
    problems = list(_problems(text, sidecar))
    if problems:
        raise ConfigError(f"{path}, {some(problems, 3)}.", hint="Change the file; nothing was written or built.")
    return text


def _problems(text: str, sidecar: Versions) -> Iterator[str]:
    for number, line in _lines(text):
        if problem := _problem(line, sidecar):
            yield f"line {number}: {problem}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each requirement or option without comments, with the number of its first line."""
    whole, begin = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        whole += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if stripped := _COMMENT.sub("", whole).strip():
            yield begin, stripped
        whole, begin = "", number + 1
    if stripped := _COMMENT.sub("", whole).strip():
        yield begin, stripped


def _problem(line: str, sidecar: Versions) -> str:
    if url := outgoing.secret_in(line):
        return (
            f"the password or token for {url} would be readable in the image; write it to a netrc file, and name that "
            "with --netrc"
        )
    if "${" in line:
        return f"{line} names an environment variable, which the build does not have"
    if _OTHER_FILE.match(line):
        return f"{line} names another file, which the build does not have; write its lines here"
    if _EDITABLE.match(line) or _LOCAL.match(line):
        return f"{line} is on this machine, where the build cannot read it; name a release, or a URL"
    if line.startswith("-"):
        name, _, value = line.replace("=", " ", 1).partition(" ")
        if name in {"-f", "--find-links"} and "://" not in value:
            return f"{line} is on this machine, where the build cannot read it; name a URL"
        return ""
    if re.match(r"[a-z+]+://", line, re.IGNORECASE):
        return ""
    try:
        # Options of one requirement, such as --hash, follow it.
        wanted = Requirement(re.split(r"\s--", line)[0])
    except InvalidRequirement:
        return f"{line[:80]!r} is not a requirement"
    if wanted.url is not None:
        return f"{line} is on this machine" if _LOCAL.match(wanted.url) or "://" not in wanted.url else ""
    return _conflict(wanted, sidecar)


def _conflict(wanted: Requirement, sidecar: Versions) -> str:
    """Return why `wanted` cannot be installed on the sidecar whatever else is: its JAX keeps its version."""
    where = {**_LINUX, "python_version": sidecar.python, "python_full_version": f"{sidecar.python}.0"}
    if wanted.marker is not None and not wanted.marker.evaluate(where):
        return ""
    # Each release of JAX needs the jaxlib of its own version.
    if canonicalize_name(wanted.name) in {"jax", "jaxlib"} and not wanted.specifier.contains(sidecar.jax, True):
        return f"{wanted} contradicts the sidecar, which has JAX {sidecar.jax}"
    return ""
