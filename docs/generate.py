"""Write the pages of the reference that are made from declarations, so that they are complete and never out of date."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import yaml

import pathways_jupyter
from pathways_jupyter.base import errors, events
from pathways_jupyter.cli import main
from pathways_jupyter.commands import colocated, job, multihost, profile
from pathways_jupyter.commands.declaration import Command, Option, ValueKind
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.server.routes import ROUTES
from pathways_jupyter.service import names, permissions

_ELSEWHERE = frozenset(["__main__", "demo", "local", "supervisor", "tunnel"])
"""Parts of the package that run in processes of their own, or are the start of one."""


def write(docs: Path) -> None:
    """Write the pages into ``reference/generated``."""
    generated = docs / "reference" / "generated"
    generated.mkdir(parents=True, exist_ok=True)
    pages = {
        "magics.md": _magics(),
        "terminal.md": _terminal(),
        "errors.md": _errors(),
        "events.md": _events(),
        "labels.md": _labels(),
        "routes.md": _routes(),
    }
    # Not pages: permissions.md includes them.
    pages |= {f"{name}.txt": _role(name) for name in permissions.BY_ROLE}
    for name, lines in pages.items():
        _put(generated / name, "\n".join(lines) + "\n")


def _put(path: Path, text: str) -> None:
    # Sphinx reads again what has changed.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _magics() -> Iterator[str]:
    yield "# Magics"
    yield ""
    yield "`%load_ext pathways_jupyter` brings them. `%pathways help` shows this page's contents, and `--help` behind a"
    yield "command its options."
    for about in MAGIC.values():
        yield from _declared(about, "%pathways ")
    for about in colocated.LINE.values():
        yield from _declared(about, "%colocated ")
    for about in (colocated.CELL, job.CELL, multihost.CELL, profile.CELL):
        yield from _declared(about, "")


def _declared(about: Command, before: str) -> Iterator[str]:
    yield f"\n## `{before}{about.name}`\n"
    yield _prose(about.summary) + "\n"
    if about.details:
        yield _prose(about.details) + "\n"
    rows = [("|".join(word.choices) or word.name.upper(), word.help) for word in about.words]
    rows += [(_spelling(option), _option_help(option)) for option in about.options]
    yield from _table(("argument", "meaning"), rows)
    yield from _table(("example", ""), [(before + line, what) for line, what in (about.examples or {}).items()])


def _spelling(option: Option) -> str:
    flag = ", ".join(filter(None, (option.short, option.flag)))
    value = option.metavar or {ValueKind.NUMBER: "N", ValueKind.SECONDS: "SECONDS"}.get(option.kind, "TEXT")
    return flag if option.kind is ValueKind.FLAG else f"{flag} {value}"


def _option_help(option: Option) -> str:
    default = f"; default: {option.default}" if option.default else ""
    return f"{option.help}{default}"


def _terminal() -> Iterator[str]:
    yield "# The command line"
    yield ""
    yield from _click(main, click.Context(main, info_name="pathways-jupyter"))


def _click(command: click.Command, context: click.Context) -> Iterator[str]:
    if context.parent is not None:
        yield f"\n## `{context.command_path}`\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield _prose(paragraph.removeprefix("\b").strip()) + "\n"
    rows = []
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            rows.append(record)
        elif isinstance(parameter, click.Argument):
            rows.append((parameter.make_metavar(context), ""))
    yield from _table(("argument", "meaning"), rows)
    if command.epilog:
        yield "```text\n" + inspect.cleandoc(command.epilog).replace("\b\n", "") + "\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _click(member, click.Context(member, info_name=name, parent=context))


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield "Every error that the package raises on purpose is a `PathwaysError`. Its text says what happened, its `hint`"
    yield "what to do. Causes and remedies are in [troubleshooting](../../troubleshooting.md)."
    yield ""
    yield from _table(
        ("error", "derived from", "meaning"),
        [
            (name, ", ".join(base.__name__ for base in error.__bases__), inspect.getdoc(error).partition("\n\n")[0])
            for name, error in error_classes().items()
        ],
        code=2,
    )


def error_classes() -> dict[str, type[errors.PathwaysError]]:
    """Return the errors that users may meet, by name, with the room where a name alone is not public.

    These are all that a kernel, a terminal or a Jupyter server can raise. What the parts in :data:`_ELSEWHERE` raise in
    processes of their own arrives as one of ``base.errors``, or ends in a log.
    """
    for module in pkgutil.walk_packages(pathways_jupyter.__path__, "pathways_jupyter."):
        if _ELSEWHERE.isdisjoint(module.name.split(".")):
            importlib.import_module(module.name)

    def below(error: type) -> Iterator[type]:
        yield error
        for each in sorted(error.__subclasses__(), key=lambda each: each.__name__):
            yield from below(each)

    found: dict[str, type[errors.PathwaysError]] = {}
    for error in below(errors.PathwaysError):
        package, *rooms = error.__module__.split(".")
        # In a test run there are errors of tests, too.
        if package == pathways_jupyter.__name__ and _ELSEWHERE.isdisjoint(rooms):
            public = error.__name__ in pathways_jupyter.__all__
            found[error.__name__ if public else f"{rooms[0]}.{error.__name__}"] = error
    return found


def _events() -> Iterator[str]:
    yield "# Events and states"
    yield ""
    yield "`Session.events()`, `Session.follow()` and `%pathways events` give a session's events. Each is an"
    yield "`Event` with a kind, a message for people, the time, and `data` for programs."
    for title, kind in (
        ("Kinds of events", events.EventKind),
        ("States of a session", events.SessionState),
        ("Stages of connecting", events.Stage),
    ):
        yield f"\n## {title}\n"
        documented = _documented_values(kind)
        yield from _table(("value", "meaning"), [(each.value, documented.get(each.name, "")) for each in kind])


def _documented_values(of: object) -> dict[str, str]:
    """Return the string below each assignment in the source of a class or module, by the assigned name."""
    tree = ast.parse(inspect.getsource(of))  # type: ignore[arg-type]
    body: Sequence[ast.stmt] = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    found = {}
    for statement, below in itertools.pairwise(body):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[statement.targets[0].id] = inspect.cleandoc(str(below.value.value))
    return found


def _labels() -> Iterator[str]:
    yield "# Labels and annotations"
    yield ""
    yield "What the package writes on the objects that it creates in Kubernetes. All of them carry"
    yield f"`{names.MANAGED_BY_LABEL}: {names.MANAGED_BY}`."
    yield ""
    documented = _documented_values(names)
    for title, ending in (("Labels", "_LABEL"), ("Annotations", "_ANNOTATION")):
        yield f"\n## {title}\n"
        yield from _table(
            ("name", "meaning"),
            [
                (value, documented.get(name, ""))
                for name, value in vars(names).items()
                if name.endswith(ending) and str(value).startswith("pathways-jupyter/")
            ],
        )


def _role(name: str) -> Iterator[str]:
    rows = [
        (f"{need.resource.group}/{need}".lstrip("/"), ", ".join(need.verbs), need.purpose)
        for need in permissions.BY_ROLE[name]
    ]
    yield from _table(("resource", "verbs", "to"), rows)
    yield "```yaml"
    yield yaml.safe_dump_all(permissions.manifests(name), sort_keys=False, default_flow_style=None, width=120).rstrip()
    yield "```"


def _routes() -> Iterator[str]:
    yield "# REST routes"
    yield ""
    yield "What the sidebar asks the Jupyter server for, below `/pathways/`."
    yield "Authentication and authorization are Jupyter's."
    yield ""
    yield from _table(
        ("request", "parameters", "meaning"),
        [
            (f"{route.method} {route.path}", ", ".join(route.parameters), inspect.getdoc(route.action) or "")
            for route in ROUTES
        ],
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], code: int = 1) -> Iterator[str]:
    if not rows:
        return
    yield f"| {' | '.join(heads)} |"
    yield "|" + " --- |" * len(heads)
    for row in rows:
        # A bar ends a cell, in code too.
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        written = [f"`{each}`" if each else "" for each in cells[:code]] + [_prose(each) for each in cells[code:]]
        yield f"| {' | '.join(written)} |"
    yield ""


def _prose(text: str) -> str:
    """Return a docstring's or a help text's line as Markdown."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"``\1``", text)
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") if "`" not in text else text
