"""Imports of the tests' fork servers, and the programs of their forks."""

import sys


def fails():
    import no_such_module  # noqa: F401


def names_modules(argv):
    """Print which of the modules in `argv` are there before anything imports them."""
    print(*(name for name in argv if name in sys.modules))
