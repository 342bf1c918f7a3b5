"""``pathways-jupyter local``: the embedded cluster on this machine; and ``demo``, a demonstration on it."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from pathways_jupyter import tpu
from pathways_jupyter.cli.options import examples, show_json
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.wording import Face

NOT_RUNNING = 3
"""Exit code of ``local status`` when there is no cluster; the convention of init scripts."""

_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_NAME = click.option("--name", default="local", show_default=True, help="Name of the cluster, if you run several.")


@click.group(epilog=examples("local up --tpu tpuv6e:2x2=2", "local status", "local down"))
def local() -> None:
    """The embedded cluster: a Kubernetes API, pods as processes, and a Pathways for CPUs."""


@local.command(
    short_help="Start it and wait until its service is ready.",
    epilog="\b\nExamples:\n  pathways-jupyter local up --tpu tpuv6e:2x2 --slices 2\n"
    "  pathways-jupyter local up --tpu tpuv6e:2x2=2,tpuv5e:4x4=1  # two services, one of them with 4 hosts a slice\n"
    "  pathways-jupyter local up --spare tpuv5e:4x4=1  # nodes for a service that you deploy\n"
    "  kubectl --kubeconfig $(pathways-jupyter local kubeconfig) get pods",
)
@click.option(
    "--tpu",
    "instances",
    default="tpuv6e:2x2",
    show_default=True,
    metavar="TYPE[=COUNT]",
    help="Type and number of its slices.",
)
@click.option("--slices", type=click.IntRange(min=1), help="Number of slices; same as =COUNT after the type.")
@click.option(
    "--spare",
    default="",
    metavar="TYPE[=COUNT]",
    help="Nodes for more slices, without a service: for service deploy.",
)
@click.option("--idle", default=1800.0, show_default=True, metavar="SECONDS", help="Ends after this time without use.")
@click.option("--port", default=0, metavar="PORT", help="Port of its API on 127.0.0.1; default: any free port.")
@click.option("--sidecar/--no-sidecar", default=True, help="Give every worker a colocated Python sidecar.")
@click.option(
    "--fast-heal", is_flag=True, help="Replace a dead worker within two seconds, without Kubernetes' back-off."
)
@_NAME
@_JSON
def up(
    instances: str,
    slices: int | None,
    spare: str,
    idle: float,
    port: int,
    sidecar: bool,
    fast_heal: bool,
    name: str,
    as_json: bool,
) -> None:
    """Start it, or add the slices that it lacks, and wait until its service is ready."""
    from pathways_jupyter.local import cluster

    wanted = tpu.parse_instances(instances)
    if slices is not None:
        if len(wanted) > 1 or "=" in instances:
            raise ConfigError("--slices and =COUNT both give the number of slices.", hint="Leave one of them out.")
        wanted = dict.fromkeys(wanted, slices)
    elif "=" not in instances:
        wanted = dict.fromkeys(wanted, 2)
    running = cluster.up(
        wanted,
        name=name,
        idle_seconds=idle,
        port=port,
        sidecar=sidecar,
        fast_heal=fast_heal,
        spare=tpu.parse_instances(spare) if spare else {},
    )
    _print(running, as_json)


@local.command(epilog=examples("local down"))
@_NAME
@_JSON
def down(name: str, as_json: bool) -> None:
    """Stop it and everything that runs in it."""
    from pathways_jupyter.local import cluster

    ended = cluster.down(name=name)
    if as_json:
        show_json({"name": name, "ended": ended})
        return
    click.echo("The embedded cluster is down." if ended else "It was not running.")


@local.command(short_help="Show whether it is running, and its slices.", epilog=examples("local status --json"))
@_NAME
@_JSON
def status(name: str, as_json: bool) -> None:
    """Show whether it is running, and its slices; exit code 3 if it is not running."""
    from pathways_jupyter.local import cluster

    running = cluster.find(name)
    if running is None:
        why = cluster.absence(name)
        click.echo("null" if as_json else f"{why}\n  {why.advice(Face.TERMINAL)}")
        sys.exit(NOT_RUNNING)
    _print(running, as_json)


@local.command(short_help="Print the path of its kubeconfig.", epilog=examples("local kubeconfig"))
@_NAME
@_JSON
def kubeconfig(name: str, as_json: bool) -> None:
    """Print the path of its kubeconfig, for kubectl and other tools."""
    running = _running(name)
    if as_json:
        show_json({"kubeconfig": running.kubeconfig, "context": running.context})
    else:
        click.echo(running.kubeconfig)


@local.command(
    "restart-api",
    short_help="Restart its API server in place; pods keep running.",
    epilog=examples("local restart-api --away 10"),
)
@_NAME
@click.option(
    "--away", type=click.FloatRange(0, 600), default=0.0, metavar="SECONDS", help="How long it stays away; default 0."
)
@_JSON
def restart_api(name: str, away: float, as_json: bool) -> None:
    """Restart its API server in place, like an upgrade of a real cluster's control plane."""
    running = _running(name)
    running.restart_api(away=away)
    if as_json:
        _print(running, as_json)
        return
    click.echo("The API server was restarted; pods kept running.")


def _running(name: str) -> Any:
    from pathways_jupyter.local import cluster

    running = cluster.find(name)
    if running is None:
        raise cluster.absence(name)
    return running


def _print(running: Any, as_json: bool) -> None:
    failed: dict[str, str] = running.status()["failed"]
    if as_json:
        show_json({**vars(running), "failed": failed})
        return
    from pathways_jupyter.render import text

    click.echo(
        f"The embedded cluster {running.name!r} is up: {text.instances(running.instances)}, process {running.pid}."
    )
    for service, why in failed.items():
        named = "" if running.name == "local" else f" --name {running.name}"
        click.echo(f"  Its service {service} has failed permanently: {why}.")
        click.echo(f"  Restart it: pathways-jupyter local down{named}, then pathways-jupyter local up{named}.")
    if running.fast_heal:
        click.echo("  It replaces a dead worker at once; a real cluster waits 10, 20, 40 ... seconds.")
    # --local means the cluster of the default name only.
    how = "--local" if running.name == "local" else f"--kubeconfig {shlex.quote(str(running.kubeconfig))}"
    # A session is on one service, and a service has slices of one type.
    for kind, number in running.instances.items():
        click.echo(f"  In a notebook: %pathways connect {how} --tpu {kind}={number}")
    for kind, number in running.spare.items():
        click.echo(f"  To deploy a service: pathways-jupyter service deploy NAME {how} --tpu {kind} --slices {number}")
    click.echo(f"  In a terminal: kubectl --kubeconfig {running.kubeconfig} get pods")


@click.command(epilog=examples("demo"))
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON; the narration goes to standard error.")
def demo(as_json: bool) -> None:
    """Connect to two slices of the embedded cluster, train, lose one, recover, and clean up.

    Each step is timed and checked; exit code 0 means that all checks passed. Needs no cluster, no TPU and no network.
    """
    from rich.console import Console

    from pathways_jupyter.demo import story

    console = Console(stderr=as_json)
    steps: list[story.Step] = []
    held = story.run(console, steps)
    if as_json:
        show_json({"held": held, "steps": steps})
    sys.exit(0 if held else 1)
