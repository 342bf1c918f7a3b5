"""``pathways-jupyter lab``: JupyterLab in the cluster, opened in this machine's browser."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json as json_format
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pathways_jupyter import config, entry
from pathways_jupyter.cli.options import epilog, examples, given, show_json, takes
from pathways_jupyter.commands.lab import LAB_DOWN, LAB_OPEN, LAB_STATUS, LAB_UP
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, ServiceError

NOT_RUNNING = 3
_LOOPBACK = "127.0.0.1"


@click.group(epilog=examples("lab up --local", "lab open", "lab down --keep-volume"))
def lab() -> None:
    """JupyterLab in the cluster, next to the TPUs.

    Its notebooks reach their proxies without a tunnel, and keep running while this machine sleeps.
    """


@lab.command(short_help="Start it, and open it in the browser.", epilog=epilog(LAB_UP))
@takes(LAB_UP)
def up(json: bool, no_open: bool, no_browser: bool, dry_run: bool, **values: Any) -> None:
    """Start JupyterLab in the cluster, or find the one that runs, and open it in the browser.

    It runs as a service account with the Role of docs/permissions.md, and has a home volume that stays until it is
    deleted. The forward to it ends with Ctrl-C; the lab keeps running until `pathways-jupyter lab down`.
    """
    from pathways_jupyter.service.lab import lifecycle, manifests
    from pathways_jupyter.service.names import current_user

    chosen = {name: values.pop(name) or "" for name in ("image", "cpu", "memory", "volume", "storage_class")}
    name, port = manifests.lab_name(current_user(), values.pop("name") or ""), _port(values.pop("port"))
    where = entry.located(entry.resolve(given(values)))
    chosen["image"] = entry.lab_image(where, chosen["image"])
    chosen["volume"] = chosen["volume"] or manifests.LabSpec.volume
    spec = manifests.LabSpec(name=name, namespace="", user=current_user(), **chosen)
    if dry_run:
        import yaml

        made = entry.ask(where, lambda client, namespace: lifecycle.manifests_of(client, spec.within(namespace)))
        click.echo(yaml.safe_dump_all([manifest for _, manifest in made], sort_keys=False), nl=False)
        return
    started = entry.ask(where, lambda client, namespace: lifecycle.up(client, spec.within(namespace), progress=_say))
    if no_open:
        _show(started, as_json=json)
        return
    _forward(where, name, port=port, browser=not no_browser, as_json=json)


@lab.command("open", short_help="Open it in the browser, until interrupted.", epilog=epilog(LAB_OPEN))
@takes(LAB_OPEN)
def open_(json: bool, no_browser: bool, **values: Any) -> None:
    """Open a running lab in the browser, through a port of this machine's loopback interface.

    The forward follows the lab when the cluster moves it to another pod, and ends with Ctrl-C or with the lab. With
    --json, the first line is an object with the address.
    """
    name, port = _name(values), _port(values.pop("port"))
    _forward(entry.look(given(values)), name, port=port, browser=not no_browser, as_json=json)


@lab.command(short_help="Show its state, pod and home volume.", epilog=epilog(LAB_STATUS))
@takes(LAB_STATUS)
def status(json: bool, **values: Any) -> None:
    """Show a lab: state, pod, image, home volume; exit code 3 if there is none."""
    from pathways_jupyter.service.lab import lifecycle

    name = _name(values)
    found = entry.ask(entry.look(given(values)), lambda client, namespace: lifecycle.find(client, namespace, name))
    if found is None:
        click.echo("null" if json else f"There is no lab {name}.\n  Start it: pathways-jupyter lab up")
        sys.exit(NOT_RUNNING)
    _show(found, as_json=json)


@lab.command(short_help="End it; its home volume stays unless you say otherwise.", epilog=epilog(LAB_DOWN))
@takes(LAB_DOWN)
def down(json: bool, keep_volume: bool, delete_volume: bool, **values: Any) -> None:
    """End a lab with its kernels and their proxies.

    Asks whether its home volume should be deleted; without a terminal, and with --keep-volume, it stays.
    """
    from pathways_jupyter.service.lab import lifecycle

    if keep_volume and delete_volume:
        raise click.UsageError("--keep-volume and --delete-volume exclude each other.")
    name = _name(values)
    where = entry.look(given(values))
    if not keep_volume and not delete_volume and not json and sys.stdin.isatty():
        there = entry.ask(where, lambda client, namespace: lifecycle.has_volume(client, namespace, name))
        question = f"Delete the home volume of {name} too, with all files in it?"
        delete_volume = there and click.confirm(question, default=False)
    removed = entry.ask(
        where, lambda client, namespace: lifecycle.down(client, namespace, name, keep_volume=not delete_volume)
    )
    if json:
        show_json({"name": name, "removed": removed})
    elif removed:
        click.echo(f"Lab {name} is gone: {', '.join(removed)}.")
    else:
        click.echo(f"There was no lab {name}.")


def _name(values: dict[str, Any]) -> str:
    from pathways_jupyter.service.lab import manifests
    from pathways_jupyter.service.names import current_user

    return manifests.lab_name(current_user(), values.pop("name") or "")


def _port(text: str | None) -> int:
    port = entry.whole_number("--port", text) if text else 0
    if port > 65535:
        raise ConfigError(f"{port} is not a port.", hint="Leave out --port for any free one.")
    return port


def _forward(where: ConnectConfig, name: str, *, port: int, browser: bool, as_json: bool) -> None:
    """Forward until interrupted, or until the lab has ended."""
    from pathways_jupyter.service.lab import lifecycle
    from pathways_jupyter.service.lab.forward import LabForward

    async def run(client: Any, namespace: str) -> None:
        found = await lifecycle.find(client, namespace, name)
        if found is None:
            raise ServiceError(f"There is no lab {name}.", hint="Start it: pathways-jupyter lab up.")
        token = await lifecycle.token(client, namespace, name)
        async with LabForward(client, namespace, name, port=port, progress=_say) as forward:
            url = f"http://{_LOOPBACK}:{forward.port}/lab?token={token}"
            _announce(url, name, as_json=as_json)
            if browser:
                await asyncio.to_thread(_open, pages.enter_context(_page(url, name)))
            await forward.supervise()
        _say(f"The lab {name} has ended.")

    try:
        # Closed here and not in `run`: an Interrupt ends this thread's wait before `run` is through with its own end.
        with contextlib.ExitStack() as pages:
            entry.ask(where, run)
    except KeyboardInterrupt:
        _say("The forward has ended; the lab keeps running. Open it again: pathways-jupyter lab open")


def _announce(url: str, name: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_format.dumps({"name": name, "url": url}))
    else:
        click.echo(f"JupyterLab: {url}")
        _say("Ctrl-C ends this forward; the lab keeps running.")


@contextlib.contextmanager
def _page(url: str, name: str) -> Iterator[Path]:
    """Write a page that leads to `url`: as an argument of the browser, the token would show in lists of processes."""
    path = config.runtime_dir() / f"{name}-{os.getpid()}.html"
    target = html.escape(url, quote=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(
            f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={target}">'
            f'<title>JupyterLab</title><p><a href="{target}">JupyterLab</a></p>\n'
        )
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _open(page: Path) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error):
        if webbrowser.open(page.as_uri()):
            return
    _say("No browser could be opened: open the address above.")


def _show(found: Any, *, as_json: bool) -> None:
    from pathways_jupyter.render import text

    if as_json:
        show_json(found)
        return
    click.echo(f"Lab {found.name}: {found.state}{f', {found.reason}' if found.reason else ''}")
    rows = {
        "namespace": found.namespace,
        "pod": f"{found.pod} on {found.node}" if found.node else found.pod,
        "image": found.image,
        "age": text.duration(found.age),
        "restarts": str(found.restarts or ""),
        "home volume": found.volume or "gone",
    }
    for title, value in rows.items():
        if value:
            click.echo(f"  {title:<12} {value}")
    click.echo("  Open it: pathways-jupyter lab open")


def _say(words: str) -> None:
    click.echo(words, err=True)
