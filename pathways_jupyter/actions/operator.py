"""``operator``: the image and the manifests by which it is installed."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.actions import images
from pathways_jupyter.actions.shell import Action, Contradiction, Shell, Values
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import parse_whole_number
from pathways_jupyter.render.view import View, for_kubectl
from pathways_jupyter.service.pathwaysjob import definition, installation


def manifests(shell: Shell, values: Values) -> View:
    """Return what installs the operator, or a part of it; contacts no cluster.

    Raises:
      ConfigError: An option is missing or invalid.
    """
    part = values.get("part", "")
    if part == "definition":
        return for_kubectl([definition.definition()])
    if part not in {"", "operator"}:
        raise ConfigError(f"There is no part {part}.", hint="There are: definition, operator.")
    if not values.get("image"):
        raise Contradiction("The operator needs an image: --image.", hint="operator image builds one.")
    replicas = parse_whole_number("--replicas", values.get("replicas", installation.REPLICAS))
    if not replicas:
        raise ConfigError("There must be at least one replica.", hint="One leads, and the others wait.")
    made = installation.manifests(
        values["image"],
        namespace=values.get("namespace") or installation.NAMESPACE,
        replicas=replicas,
        service_monitor=bool(values.get("service_monitor")),
    )
    return for_kubectl(made if part else [definition.definition(), *made])


ACTIONS: Mapping[str, Action] = {"operator manifests": manifests, "operator image": images.operator}
