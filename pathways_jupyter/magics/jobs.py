"""``%pathways job ...`` and the cell magic ``%%pathwaysjob``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class

from pathways_jupyter.commands.job import CELL_JOB
from pathways_jupyter.errors import ConfigError, ServiceError
from pathways_jupyter.magics import completion, parser
from pathways_jupyter.magics.notebook_session import Connection
from pathways_jupyter.magics.screen import Screen, shown

Values = Mapping[str, Any]

_MAGIC = f"%%{CELL_JOB.name}"
_FIELD = re.compile(r"^(?P<indent>\s*)(?P<item>- +)?(?P<key>\w+):(?P<value>.*)$")


@magics_class
class JobMagics(Magics):  # type: ignore[misc]
    """The cell magic of one shell."""

    @cell_magic  # type: ignore[untyped-decorator]
    def pathwaysjob(self, line: str, cell: str) -> Any:
        """Create the PathwaysJob that the cell describes; see ``%%pathwaysjob --help``."""
        call = parser.parse(f"{CELL_JOB.name} {line}", {CELL_JOB.name: CELL_JOB})
        if call.help:
            from pathways_jupyter.render import help as picture

            return shown(picture.command(CELL_JOB, "%%"))
        return shown(_apply(Screen(self.shell), cell, call.values, source="the cell"))


def new(connection: Connection, values: Values) -> None:
    """Print a job's manifest, or write it to a file."""
    from pathways_jupyter import job_requests

    made = job_requests.new(values["name"], values.get("program", ()), values)
    path = values.get("output")
    if not path:
        connection.screen.line(made.rstrip())
        return
    try:
        # Never over a file that exists: it may have been edited.
        with Path(path).expanduser().open("x", encoding="utf-8") as file:
            file.write(made)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.", hint="Choose another file.") from None
    connection.screen.line(f"Wrote {path}. Create the job: %pathways job apply {path}")


def apply(connection: Connection, values: Values) -> Any:
    """Create the job of a file."""
    from pathways_jupyter import job_requests

    return _apply(connection.screen, job_requests.read(values["file"]), values, source=values["file"])


def list_(connection: Connection, values: Values) -> Any:
    """The jobs of the namespace."""
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    return picture.view(job_requests.list_(_placed(connection, values)))


def show(connection: Connection, values: Values) -> Any:
    """One job; in a notebook live until it is over."""
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    placed = _placed(connection, values)
    found = job_requests.show(values["name"], placed)
    if not connection.screen.in_place:
        return picture.details(found)
    from pathways_jupyter.widgets.job import JobPanel

    return JobPanel(connection.shell, job_requests.where(placed), found)


def logs(connection: Connection, values: Values) -> None:
    """The log of a job's program."""
    from pathways_jupyter import job_requests

    try:
        for line in job_requests.logs(values["name"], _placed(connection, values)):
            connection.screen.line(line)
    except KeyboardInterrupt:
        connection.screen.line("(no longer following)")


def suspend(connection: Connection, values: Values) -> None:
    """Suspend a job."""
    from pathways_jupyter import job_requests

    job_requests.suspend(values["name"], _placed(connection, values), suspended=True)
    connection.screen.line(f"Job {values['name']} is suspended.")


def resume(connection: Connection, values: Values) -> None:
    """Resume a job."""
    from pathways_jupyter import job_requests

    job_requests.suspend(values["name"], _placed(connection, values), suspended=False)
    connection.screen.line(f"Job {values['name']} is resumed.")


def delete(connection: Connection, values: Values) -> None:
    """Delete a job, after a question."""
    from IPython.core.error import StdinNotImplementedError

    from pathways_jupyter import job_requests

    name, placed = values["name"], _placed(connection, values)
    question = job_requests.question(job_requests.find(name, placed))
    if not values.get("yes"):
        try:
            answer = input(f"{question} [y/N] ")
        except (StdinNotImplementedError, EOFError):
            raise ServiceError(f"Job {name} was not deleted.", hint="No answer can be given here: add --yes.") from None
        if answer.strip().lower() not in {"y", "yes"}:
            connection.screen.line("Not deleted.")
            return
    connection.screen.line(job_requests.outcome(name, deleted=job_requests.delete(name, placed)))


def _apply(screen: Screen, text: str, values: Values, *, source: str) -> Any:
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    name, done = job_requests.apply(text, values, source=source)
    screen.line(f"Job {name}: {done}.")
    if not values.get("wait") or values.get("dry_run"):
        return None
    try:
        for info in job_requests.follow(name, values):
            screen.line(picture.line(info))
            if said := job_requests.idling(info):
                screen.line(said)
    except KeyboardInterrupt:
        screen.line(f"(no longer following; job {name} runs on)")
        return None
    return picture.details(job_requests.show(name, values))


def _placed(connection: Connection, values: Values) -> Values:
    """`values` with the cluster of this notebook's session, where they name none."""
    from pathways_jupyter import job_requests

    current = connection.session
    if current is None or job_requests.names_cluster(values):
        return values
    config, record = current.config, current.record
    mine: dict[str, Any] = {"local": True} if config.local else {
        name: getattr(config, name)
        for name in ("context", "kubeconfig", "cluster", "project", "region", "profile")
        if getattr(config, name)
    }  # fmt: skip
    return {"namespace": record.namespace, **mine, **values}


ACTIONS: Mapping[str, Callable[[Connection, Values], Any]] = {
    "job new": new,
    "job apply": apply,
    "job list": list_,
    "job show": show,
    "job logs": logs,
    "job suspend": suspend,
    "job resume": resume,
    "job delete": delete,
}


def matchers() -> list[Any]:
    """Tab completion for the magic's own line, and for the fields in its cell."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=f"{_MAGIC}-fields-completer")  # type: ignore[untyped-decorator]
    def match(context: Any) -> dict[str, Any]:
        nothing = {"completions": [], "matched_fragment": "", "suppress": False}
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        if context.cursor_line == 0 or not lines[0].lstrip().startswith(_MAGIC):
            return nothing
        fragment, found = complete(lines[1:-1], context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(each, type="field") for each in found or [fragment]],
            "matched_fragment": fragment,
            "ordered": True,
            "suppress": True,
        }

    return [completion.matcher(_MAGIC, {CELL_JOB.name: CELL_JOB}, command=CELL_JOB.name), match]


def complete(above: list[str], line: str) -> tuple[str, list[str]]:
    """Return what is being written in a cell's last line, and the fields or values that it may become.

    Args:
      above: The lines before it, without the magic's own.
    """
    from pathways_jupyter.service.pathwaysjob import yaml_text

    if written := _FIELD.match(line):
        indent = len(written["indent"]) + len(written["item"] or "")
        fragment = written["value"].lstrip()
        values = yaml_text.values_at([*_path(above, indent), written["key"]])
        return fragment, [each for each in values if each.startswith(fragment)]
    content = line.lstrip()
    indent = len(line) - len(content)
    if content.startswith("- "):
        indent, content = indent + 2, content[2:]
    fields = yaml_text.fields_at(_path(above, indent))
    suffix = {"value": ": ", "mapping": ":", "list": ":"}
    return content, [f"{name}{suffix[kind]}" for name, kind in fields.items() if name.startswith(content)]


def _path(above: list[str], indent: int) -> list[str]:
    """The fields around a line with that indentation, the outermost first."""
    path: list[str] = []
    for line in reversed(above):
        if (found := _FIELD.match(line)) is None:
            continue
        outer = len(found["indent"])
        # A list's dash may stand below its field's first letter, and its items' fields two further.
        inner = outer + len(found["item"] or "")
        if found["item"] and inner == indent:
            indent = outer + 1
            continue
        if inner < indent and not found["value"].strip():
            path.insert(0, found["key"])
            indent = inner
    return path
