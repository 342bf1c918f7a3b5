"""Text of others, from a cluster or a bucket, without characters that act on the screen that it is shown on."""

from __future__ import annotations

_REPLACED = "\N{REPLACEMENT CHARACTER}"


def printable(text: str, *, lines: bool = False) -> str:
    """Return `text` with what is not printable replaced: control characters, and those that turn the writing around.

    Args:
      lines: Whether it may have several lines, and tabs; otherwise these become spaces.
    """
    if text.isprintable():
        return text
    if lines:
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return "".join(each if each.isprintable() else " " if each in "\n\r\t" else _REPLACED for each in text)
