"""``pathways-jupyter job``: PathwaysJobs, from their manifest to their end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pathways_jupyter.cli.options import epilog, examples, given, show, show_json, takes
from pathways_jupyter.commands.declaration import Command
from pathways_jupyter.commands.job import (
    JOB_APPLY,
    JOB_DELETE,
    JOB_LIST,
    JOB_LOGS,
    JOB_NEW,
    JOB_RESUME,
    JOB_SHOW,
    JOB_SUSPEND,
)
from pathways_jupyter.errors import ConfigError, ServiceError


@click.group(
    epilog=examples(
        "job new train --tpu tpuv6e:2x2=2 --image IMAGE -o train.yaml -- python train.py",
        "job apply train.yaml --wait",
        "job logs train -f",
    )
)
def job() -> None:
    """PathwaysJobs: programs on TPUs that run in the cluster without this machine."""


def _takes(about: Command, *, as_json: bool = True) -> Callable[[Callable[..., Any]], click.Command]:
    def decorate(function: Callable[..., Any]) -> click.Command:
        name = about.name.partition(" ")[2]
        made = takes(about, as_json=as_json)(function)
        return job.command(name, short_help=about.summary, epilog=epilog(about))(made)

    return decorate


@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def _new(program: tuple[str, ...], **values: Any) -> None:
    """Print the manifest of job NAME, which runs PROGRAM; without PROGRAM it is headless."""
    from pathways_jupyter import job_requests

    options = given(values)
    made = job_requests.new(options["name"], program, options)
    if path := options.get("output"):
        try:
            # Never over a file that exists: it may have been edited.
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(made)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error}.", hint="Choose another file.") from None
        click.echo(f"Wrote {path}. Create the job: pathways-jupyter job apply {path}", err=True)
    else:
        click.echo(made, nl=False)


_takes(JOB_NEW, as_json=False)(_new)


@_takes(JOB_APPLY)
def apply(json: bool, **values: Any) -> None:
    """Create the job of FILE ("-" for standard input), after the cluster has checked it.

    Exit code with --wait: 0 if the job completed, or is headless and runs; 1 if it failed.
    """
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    options = given(values)
    name, done = job_requests.apply(job_requests.read(options["file"]), options, source=options["file"])
    click.echo(f"Job {name}: {done}.", err=json)
    state = ""
    if options.get("wait") and not options.get("dry_run"):
        for info in job_requests.follow(name, options):
            state = info.state
            click.echo(picture.line(info), err=True)
            if said := job_requests.idling(info):
                click.echo(said, err=True)
    if json:
        show_json({"name": name, "done": done, **({"state": state} if state else {})})
    sys.exit(int(state == "Failed"))


@_takes(JOB_LIST)
def list_(json: bool, **values: Any) -> None:
    """List the jobs of the namespace, the newest first."""
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    show(picture.view(job_requests.list_(given(values))), as_json=json)


@_takes(JOB_SHOW)
def show_(json: bool, **values: Any) -> None:
    """Show job NAME: state, pods, events."""
    from pathways_jupyter import job_requests
    from pathways_jupyter.render import jobs as picture

    options = given(values)
    show(picture.details(job_requests.show(options["name"], options)), as_json=json)


@_takes(JOB_LOGS)
def logs(json: bool, **values: Any) -> None:
    """Print the log of a program of job NAME."""
    from pathways_jupyter import job_requests

    options = given(values)
    # Interrupt is the normal way to end --follow, so it is no error.
    with contextlib.suppress(KeyboardInterrupt) if options.get("follow") else contextlib.nullcontext():
        for line in job_requests.logs(options["name"], options):
            if json:
                show_json({"line": line}, indent=None)
            else:
                click.echo(line)


@job.command("connect", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1)
def connect(words: tuple[str, ...]) -> None:
    """Refuse what only a notebook can do, and name what can be done here."""
    name = next((each for each in words if not each.startswith("-")), "NAME")
    raise click.UsageError(
        f"job connect works in notebooks only: %pathways job connect {name}. "
        f"A program runs on the job's slices with: pathways-jupyter run --job {name} -- python train.py"
    )


@_takes(JOB_SUSPEND)
def suspend(json: bool, **values: Any) -> None:
    """Suspend job NAME: its pods end, and their TPUs are free for others."""
    _suspend(given(values), json, suspended=True)


@_takes(JOB_RESUME)
def resume(json: bool, **values: Any) -> None:
    """Resume job NAME; its program starts from the beginning."""
    _suspend(given(values), json, suspended=False)


def _suspend(options: dict[str, Any], json: bool, *, suspended: bool) -> None:
    from pathways_jupyter import job_requests

    job_requests.suspend(options["name"], options, suspended=suspended)
    if json:
        show_json({"name": options["name"], "suspended": suspended})
    else:
        click.echo(f"Job {options['name']} is {'suspended' if suspended else 'resumed'}.")


@_takes(JOB_DELETE)
def delete(json: bool, **values: Any) -> None:
    """Delete job NAME and all its pods. Asks first."""
    from pathways_jupyter import job_requests

    options = given(values)
    name = options["name"]
    found = job_requests.find(name, options)
    if not options.get("yes"):
        if not sys.stdin.isatty():
            raise ServiceError(f"Job {name} was not deleted.", hint="Answer on a terminal, or add --yes.")
        click.confirm(job_requests.question(found), abort=True, err=True)
    deleted = job_requests.delete(name, options)
    if json:
        show_json({"name": name, "deleted": deleted})
    else:
        click.echo(job_requests.outcome(name, deleted=deleted))
