"""The extras of the installation: what is missing for a part is named before that part changes anything.

The core has what connecting a notebook needs. What only some users need is brought by an extra: ``[lab]``, ``[local]``,
``[hosts]``, ``[elastic]``; ``[all]`` is all of them.
"""

from __future__ import annotations

import importlib.util

from pathways_jupyter.base.errors import ConfigError


def require(extra: str, what: str, *modules: str) -> None:
    """Check that the modules which an extra brings are installed, without importing them.

    Args:
      extra: Name of the extra, for instance ``local``.
      what: What needs it, as the beginning of a sentence: ``"The embedded cluster"``.

    Raises:
      ConfigError: One is missing; the hint is the pip command.
    """
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            # The package around it is missing.
            found = False
        if not found:
            raise ConfigError(
                f"{what} needs the package {module}, which is not installed.",
                hint=f"Run pip install 'pathways_jupyter[{extra}]'.",
            )
