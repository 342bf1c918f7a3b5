"""``lab``: JupyterLab in the cluster, opened in this machine's browser."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import NOT_RUNNING, Action, Contradiction, Shell, Values
from pathways_jupyter.base import config
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, ServiceError
from pathways_jupyter.base.text import parse_whole_number
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import fields, indented, line
from pathways_jupyter.render.view import View, drawn, for_kubectl, said
from pathways_jupyter.service.lab import forward, lifecycle, manifests
from pathways_jupyter.service.lab.lifecycle import Lab
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import clusters


def up(shell: Shell, values: Values) -> View | None:
    """Start a lab, or find the one that runs, and open it in the browser.

    Raises:
      ConfigError: A real cluster needs an image, and none is given.
      ServiceError: It cannot start.
    """
    name, port = _name(values), _port(values)
    where = cluster.locate(cluster.resolve(cluster.named(values)))
    image = values.get("image") or ""
    if not image and not where.local:
        raise ConfigError(
            "A lab needs an image with JupyterLab and pathways_jupyter.",
            hint="Give one with --image; docs/in-cluster.md shows how to build it.",
        )
    if not image:
        from pathways_jupyter.local.node import programs

        image = programs.reference(programs.LAB_IMAGE)
    resources = {each: values[each] for each in ("cpu", "memory", "volume", "storage_class") if values.get(each)}
    spec = manifests.LabSpec(name=name, namespace="", user=current_user(), image=image, **resources)
    if values.get("dry_run"):
        made = clusters.ask(where, lambda client, namespace: lifecycle.manifests_of(client, spec.within(namespace)))
        return for_kubectl([manifest for _, manifest in made])
    lab = clusters.ask(
        where, lambda client, namespace: lifecycle.up(client, spec.within(namespace), progress=shell.say)
    )
    if values.get("no_open"):
        return _view(lab)
    _forward(shell, where, name, port=port, browser=not values.get("no_browser"))
    return None


def open_(shell: Shell, values: Values) -> None:
    """Open a running lab in the browser, until interrupted or until it has ended."""
    where = cluster.where(values, others=False)
    _forward(shell, where, _name(values), port=_port(values), browser=not values.get("no_browser"))


def status(shell: Shell, values: Values) -> View:
    """Return a lab's state, pod, image and home volume."""
    name = _name(values)
    lab = clusters.ask(
        cluster.where(values, others=False), lambda client, namespace: lifecycle.find(client, namespace, name)
    )
    if lab is None:
        missing = f"There is no lab {name}.\n  Start it: pathways-jupyter lab up"
        return View(None, missing, "", exit_code=NOT_RUNNING)
    return _view(lab)


def down(shell: Shell, values: Values) -> View:
    """End a lab with its kernels and their proxies; its home volume stays unless the user says otherwise."""
    keep, remove = bool(values.get("keep_volume")), bool(values.get("delete_volume"))
    if keep and remove:
        raise Contradiction("--keep-volume and --delete-volume exclude each other.")
    name, where = _name(values), cluster.where(values, others=False)
    if not keep and not remove and shell.can_answer:
        there = clusters.ask(where, lambda client, namespace: lifecycle.has_volume(client, namespace, name))
        remove = there and shell.confirm(f"Delete the home volume of {name} too, with all files in it?", abort=False)
    removed = clusters.ask(
        where, lambda client, namespace: lifecycle.down(client, namespace, name, keep_volume=not remove)
    )
    done = f"Lab {name} is gone: {', '.join(removed)}." if removed else f"There was no lab {name}."
    return said(done, {"name": name, "removed": removed})


def _name(values: Values) -> str:
    return manifests.lab_name(current_user(), values.get("name", ""))


def _port(values: Values) -> int:
    return parse_whole_number("--port", values.get("port", 0), most=65535)


def _view(lab: Lab) -> View:
    pairs = [
        ("namespace", lab.namespace),
        ("pod", f"{lab.pod} on {lab.node}" if lab.node else lab.pod),
        ("image", lab.image),
        ("age", text.duration(lab.age)),
        ("restarts", str(lab.restarts or "")),
        ("home volume", lab.volume or "gone"),
    ]
    title = f"Lab {lab.name}: {lab.state}{f', {lab.reason}' if lab.reason else ''}"
    return drawn(lab, line(title), fields(pairs), indented(line("Open it: pathways-jupyter lab open")))


def _forward(shell: Shell, where: ConnectConfig, name: str, *, port: int, browser: bool) -> None:
    """Forward a port of this machine to the lab, until interrupted or until the lab has ended."""

    async def run(client: Client, namespace: str) -> None:
        if await lifecycle.find(client, namespace, name) is None:
            raise ServiceError(f"There is no lab {name}.", hint="Start it: pathways-jupyter lab up.")
        token = await lifecycle.token(client, namespace, name)
        async with forward.forwarded(client, namespace, name, port=port) as forwarding:
            url = f"http://{forwarding.address}/lab?token={token}"
            shell.line(f"JupyterLab: {url}", name=name, url=url)
            shell.say("Ctrl-C ends this forward; the lab keeps running.")
            if browser and not await asyncio.to_thread(webbrowser.open, pages.enter_context(_page(url, name)).as_uri()):
                shell.say("No browser could be opened: open the address above.")
            await forward.follow(forwarding, name, shell.say)
        shell.say(f"The lab {name} has ended.")

    try:
        # Closed here and not in `run`: an Interrupt ends this thread's wait before `run` is through with its own end.
        with contextlib.ExitStack() as pages:
            clusters.ask(where, run)
    except KeyboardInterrupt:
        shell.say("The forward has ended; the lab keeps running. Open it again: pathways-jupyter lab open")


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


ACTIONS: Mapping[str, Action] = {"lab up": up, "lab open": open_, "lab status": status, "lab down": down}
