"""Address of the project's repository. Only this: the build reads it too."""

from __future__ import annotations

REPOSITORY = ""
"""Address of the repository, https://HOST/OWNER/NAME; empty until there is one.

The metadata of the wheel, the README's links on the package's page, errors and ``explain`` follow from it.
"""


def page(path: str, *, raw: bool = False) -> str:
    """Return the address of a file or folder of the repository; empty while there is no repository.

    Args:
      raw: The file's own content, such as a picture, and not a page about it.
    """
    return f"{REPOSITORY}/{'raw' if raw else 'blob'}/HEAD/{path}" if REPOSITORY else ""
