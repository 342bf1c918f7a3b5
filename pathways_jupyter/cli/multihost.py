"""``pathways-jupyter multihost``: one command on many hosts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import click

from pathways_jupyter import blocking, entry
from pathways_jupyter.cli.options import INTERRUPTED, epilog, examples, given, show, show_json, takes
from pathways_jupyter.commands import multihost as commands
from pathways_jupyter.multihost import asked

_SEEDS = {
    "TPU_PREFIX": "tpu_prefix",
    "SCRIPT_DIR": "directory",
    "RUN_NAME": "name",
    "PROJECT": "project",
    "ZONE": "zone",
}
_SWITCHES = {"USE_EXISTING_FOLDER": "existing", "INTERNAL_IP": "internal_ip"}


def _seeds(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags in capitals, which take a value each, also those that are switches."""
    for flag in reversed([*_SEEDS, "COMMAND"]):
        function = click.option(f"--{flag}", flag, metavar="VALUE", help="As in multihost_runner.py.")(function)
    for flag in reversed(_SWITCHES):
        function = click.option(f"--{flag}", flag, type=click.BOOL, help="As in multihost_runner.py.")(function)
    return function


@click.group(
    invoke_without_command=True,
    epilog=examples("multihost run --hosts hosts.txt -- python3 train.py", "multihost status"),
)
@_seeds
@click.pass_context
def multihost(context: click.Context, /, COMMAND: str | None, **values: Any) -> None:
    """Run a command on many hosts: content is sent once, logs come back, nothing is left running.

    The flags in capitals are those of multihost_runner.py:
    pathways-jupyter multihost --TPU_PREFIX=my-tpu --COMMAND="bash setup.sh"
    """
    named = {_SEEDS.get(name) or _SWITCHES[name]: value for name, value in values.items() if value is not None}
    if context.invoked_subcommand is not None:
        if named or COMMAND:
            raise click.UsageError("The flags in capitals replace a command; leave one of them out.")
        return
    if COMMAND is None:
        click.echo(context.get_help())
        return
    # A host that gcloud has made is new to this machine; the seed's script accepts its key as well.
    _run({"accept_new": True, **named}, COMMAND, as_json=False)


@multihost.command(
    short_help=commands.RUN.summary, epilog=epilog(commands.RUN), context_settings={"ignore_unknown_options": False}
)
@takes(commands.RUN)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(json: bool, command: tuple[str, ...], **values: Any) -> None:
    """Send a directory to all hosts, and run COMMAND on them; write -- before it.

    The exit code is the worst of all hosts; 255 for a host that could not be reached.
    """
    _run(given(values), asked.shell(command) if command else "", as_json=json)


@multihost.command(short_help=commands.STATUS.summary, epilog=epilog(commands.STATUS))
@takes(commands.STATUS)
def status(json: bool, run: str | None) -> None:
    """Show the state of a run on each host."""
    from pathways_jupyter.multihost import records, run_actions
    from pathways_jupyter.render import multihost as picture

    record = records.find(run or "")
    show(picture.hosts(record, blocking.run(run_actions.status(record))), as_json=json)


@multihost.command(short_help=commands.LIST.summary, epilog=epilog(commands.LIST))
@takes(commands.LIST)
def runs(json: bool) -> None:
    """Show the runs of this machine, the newest first."""
    from pathways_jupyter.multihost import records
    from pathways_jupyter.render import multihost as picture

    show(picture.runs(records.runs()), as_json=json)


@multihost.command(short_help=commands.ATTACH.summary, epilog=epilog(commands.ATTACH))
@takes(commands.ATTACH)
def attach(json: bool, run: str | None) -> None:
    """Follow a run that was detached, or whose client has gone. Interrupt leaves off and ends nothing."""
    from pathways_jupyter.multihost import records, run_actions

    record = records.find(run or "")
    _follow(lambda: run_actions.attach(record), record, as_json=json)


@multihost.command(short_help=commands.LOGS.summary, epilog=epilog(commands.LOGS))
@takes(commands.LOGS)
def logs(json: bool, run: str | None, host: str | None, tail: str | None) -> None:
    """Show the output of one host of a run, or of all."""
    from pathways_jupyter.multihost import output, records, run_actions, targets

    record = records.find(run or "")
    chosen = [targets.choose(record.targets, host)] if host else record.targets
    blocking.run(run_actions.fetch(record))
    for target in chosen:
        for line in output.tail(record.log(target), entry.whole_number("--tail", tail or 100)):
            if json:
                show_json({"host": target.label, "line": line}, indent=None)
            else:
                click.echo(line if len(chosen) == 1 else f"[{target.label}] {line}")


@multihost.command(short_help=commands.STOP.summary, epilog=epilog(commands.STOP))
@takes(commands.STOP)
def stop(json: bool, run: str | None) -> None:
    """End a run on all hosts, and wait until it has ended."""
    from pathways_jupyter.multihost import records, run_actions
    from pathways_jupyter.render import multihost as picture

    record = records.find(run or "")
    ended = blocking.run(run_actions.stop(record))
    show(picture.hosts(record, ended), as_json=json)
    sys.exit(int(not all(each.phase.over and not each.message for each in ended)))


@multihost.command(short_help=commands.HOSTS.summary, epilog=epilog(commands.HOSTS))
@takes(commands.HOSTS)
def hosts(json: bool, **values: Any) -> None:
    """Show which hosts are meant, whether they can be reached, and what holds their TPUs. Changes nothing."""
    from pathways_jupyter.multihost import run_actions
    from pathways_jupyter.render import multihost as picture

    found = blocking.run(_find(given(values)))
    _, reports = blocking.run(run_actions.examine(found))
    show(picture.reports(reports), as_json=json)
    sys.exit(int(any(each.error for each in reports)))


@multihost.command(short_help=commands.CREATE.summary, epilog=epilog(commands.CREATE))
@takes(commands.CREATE)
def create(json: bool, name: str, **values: Any) -> None:
    """Ask for TPU VMs with the queued resource NAME. It may take long; see the command wait."""
    from pathways_jupyter.multihost import queued_resources

    wish = asked.wish({"name": name, **values}, entry.whole_number("--node-count", values["nodes"] or 1))
    place = {each: values[each] or "" for each in ("project", "zone")}
    queued_resources.create(**place, wish=wish)
    _show_queued(queued_resources.list_(**place, only=name), as_json=json)


@multihost.command("list", short_help=commands.QUEUED.summary, epilog=epilog(commands.QUEUED))
@takes(commands.QUEUED)
def list_(json: bool, only: str | None, project: str | None, zone: str | None) -> None:
    """Show the queued resources of a zone, and their TPU VMs."""
    from pathways_jupyter.multihost import queued_resources

    _show_queued(queued_resources.list_(project or "", zone or "", only or ""), as_json=json)


@multihost.command(short_help=commands.WAIT.summary, epilog=epilog(commands.WAIT))
@takes(commands.WAIT)
def wait(json: bool, name: str, timeout: str | None, project: str | None, zone: str | None) -> None:
    """Wait until the queued resource NAME is ACTIVE and its TPU VMs are READY. Exit code 1 if it has failed."""
    from pathways_jupyter.multihost import queued_resources
    from pathways_jupyter.render import multihost as picture

    longest = asked.seconds("--timeout", timeout or 3600)
    found = queued_resources.wait(
        project or "",
        zone or "",
        name,
        timeout=longest,
        changed=lambda now: click.echo(picture.queued_line(now), err=True),
    )
    _show_queued([found], as_json=json)


@multihost.command(short_help=commands.DELETE.summary, epilog=epilog(commands.DELETE))
@takes(commands.DELETE)
def delete(
    json: bool,
    name: str,
    force: bool,
    asynchronous: bool,
    yes: bool,
    dry_run: bool,
    project: str | None,
    zone: str | None,
) -> None:
    """Delete the queued resource NAME; with --force its TPU VMs too."""
    from pathways_jupyter.multihost import queued_resources

    if dry_run:
        _show_queued([queued_resources.get(project or "", zone or "", name)], as_json=json)
        return
    # Without a terminal there is no answer, and the flag says what is meant, as to gcloud.
    if force and not yes and sys.stdin.isatty():
        found = queued_resources.get(project or "", zone or "", name)
        click.confirm(queued_resources.question(found, force=force), abort=True, err=True)
    queued_resources.delete(project or "", zone or "", name, force=force, asynchronous=asynchronous)
    if json:
        show_json({"name": name, "deleted": not asynchronous})
    else:
        click.echo(f"{name} is being deleted." if asynchronous else f"{name} is deleted.")


def _show_queued(found: list[Any], *, as_json: bool) -> None:
    from pathways_jupyter.render import multihost as picture

    show(picture.queued(found), as_json=as_json)


async def _find(values: dict[str, Any]) -> Any:
    from pathways_jupyter.multihost import host_connections

    return await host_connections.find(entry.hosts_wanted(values))


def _run(values: dict[str, Any], command: str, *, as_json: bool) -> None:
    from pathways_jupyter.multihost import run_actions
    from pathways_jupyter.render import multihost as picture

    request = asked.request(values, command)
    if values.get("dry_run"):
        found = blocking.run(_find(values))
        packed, reports = blocking.run(run_actions.examine(found, request))
        show(picture.reports(reports, packed, command), as_json=as_json)
        sys.exit(int(any(each.error for each in reports)))

    async def started() -> AsyncIterator[Any]:
        # Finding the hosts may take long, and is interrupted like the run itself.
        async with contextlib.aclosing(run_actions.start(await _find(values), request)) as events:
            async for event in events:
                yield event

    _follow(started, None, as_json=as_json)


def _follow(source: Callable[[], AsyncIterator[Any]], record: Any, *, as_json: bool) -> None:
    """Print the events of a run as they come, and exit with its exit code, or that of an Interrupt."""
    from pathways_jupyter.multihost import records, run_actions
    from pathways_jupyter.multihost.records import Record
    from pathways_jupyter.multihost.run_events import Changed, Ended, Note, Output
    from pathways_jupyter.render import multihost as picture

    last = None
    try:
        with contextlib.closing(blocking.iterate(source, blocking.Background())) as events:
            for event in events:
                if isinstance(event, Record):
                    record = event
                elif isinstance(event, Output):
                    for line in event.lines:
                        click.echo(f"[{event.target.label}] {line}", err=as_json)
                elif isinstance(event, Note):
                    click.echo(event.text, err=True)
                elif isinstance(event, Changed) and event.status.phase != last:
                    last = event.status.phase
                    click.echo(f"[{event.status.target.label}] {last} ...", err=True) if not last.over else None
                elif isinstance(event, Ended):
                    hosts, code = event.hosts, event.code or 0
    except KeyboardInterrupt:
        # By now the run has ended on the hosts, if it ends with this command.
        hosts, code = run_actions.last_known(record) if record is not None else (), INTERRUPTED
        click.echo("Interrupted." if hosts else picture.nothing_started().text, err=True)
    if hosts:
        # Read again: it has an end now.
        show(picture.hosts(records.read(record.id), hosts), as_json=as_json)
    if not all(each.phase.over for each in hosts):
        back = f"pathways-jupyter multihost attach {record.name}"
        click.echo(f"It goes on without this machine. Come back: {back}", err=as_json)
    sys.exit(code)
