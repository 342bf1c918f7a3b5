"""``lab``: JupyterLab in the cluster, reached through a loopback port of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice, with_options
from pathways_jupyter.base.setting_values import NAME, QUANTITY, PodFormat
from pathways_jupyter.base.text import parse_whole_number
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render.view import View, for_kubectl, said
from pathways_jupyter.service.lab import lifecycle, manifests
from pathways_jupyter.service.lab.manifests import LabSpec
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import clusters

_RESOURCES: Mapping[str, PodFormat] = {"cpu": QUANTITY, "memory": QUANTITY, "volume": QUANTITY, "storage_class": NAME}


def up(shell: Shell, values: Values) -> View | None:
    """Start a lab, or find the one that runs, and forward a port to it until interrupted or until the lab has ended.

    Raises:
      ConfigError: A value is invalid, or a real cluster needs an image, and none is given; nothing was done.
      ServiceError: It cannot start.
    """
    port = parse_whole_number("--port", values.get("port", 0), most=65535)
    # What the cluster refuses only when the rest of the lab is made already.
    check(values)
    with cluster.Located(cluster.resolve(cluster.named(values))) as where:
        # A lab needs no slices of its own.
        pass
    spec = spec_of(values, where)
    name = spec.name
    if values.get("dry_run"):
        made = clusters.ask(where, lambda client, namespace: lifecycle.manifests_of(client, spec.within(namespace)))
        return for_kubectl([manifest for _, manifest in made])
    token = clusters.ask(
        where, lambda client, namespace: lifecycle.up(client, spec.within(namespace), progress=shell.say)
    )

    async def forward(client: Client, namespace: str) -> None:
        reload = clusters.reloader(lambda: where, client)
        async with lifecycle.forwarded(client, namespace, name, port=port, reload=reload) as forwarding:
            url = f"http://{forwarding.address}/lab?token={token}"
            shell.line(f"JupyterLab: {url}", name=name, url=url)
            shell.say("Ctrl-C ends this forward; the lab keeps running.")
            await lifecycle.until_ended(client, namespace, name)
        shell.say(f"The lab {name} has ended.")

    try:
        clusters.ask(where, forward)
    except KeyboardInterrupt:
        given = f"--name {values['name']}" if values.get("name") else ""
        again = advice("The forward has ended; the lab keeps running. Open it again: {lab_up:{given}}", given=given)
        shell.say(with_options(again, cluster.named_options(values)))
    return None


def check(values: Values, command: str = "lab up") -> dict[str, str]:
    """Return what a lab's pod gets by the options of `command`.

    Raises:
      ConfigError: A value is none.
    """
    given = {name: str(values[name]) for name in _RESOURCES if values.get(name)}
    for name, value in given.items():
        if problem := _RESOURCES[name].problem(value):
            raise ConfigError(f"{name} cannot be {value!r}: {problem}.", hint=f"See pathways-jupyter {command} --help.")
    return given


def spec_of(values: Values, where: ConnectConfig, command: str = "lab up") -> LabSpec:
    """Return the lab that the values of `command` describe, in the namespace that they name.

    Raises:
      ConfigError: A value is invalid.
    """
    name = manifests.lab_name(current_user(), values.get("name", ""))
    image = str(values.get("image") or "").strip()
    # However it was named: by --local, or by its kubeconfig.
    if not image and clusters.Embedded.of(where) is not None:
        from pathways_jupyter.local.node import programs

        image = programs.reference(programs.LAB_IMAGE)
    return LabSpec(name=name, namespace=where.namespace, user=current_user(), image=image, **check(values, command))


def down(shell: Shell, values: Values) -> View:
    """End a lab with its kernels and their proxies; its home volume stays unless the user says otherwise."""
    name, delete_volume = manifests.lab_name(current_user(), values.get("name", "")), bool(values.get("delete_volume"))
    removed = clusters.ask(
        cluster.where(values, others=False),
        lambda client, namespace: lifecycle.down(client, namespace, name, delete_volume=delete_volume),
    )
    done = f"Lab {name} is gone: {', '.join(removed)}." if removed else f"There was no lab {name}."
    return said(done, {"name": name, "removed": removed})


ACTIONS: Mapping[str, Action] = {"lab up": up, "lab down": down}
