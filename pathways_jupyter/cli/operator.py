"""``pathways-jupyter operator``: run the operator, or print the manifests that install it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from pathways_jupyter.cli.declared import examples


class _Operator(click.Group):
    """A group whose command can be left out: what comes first is then an option of ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in {"-h", "--help"}):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Operator,
    short_help="Control PathwaysJobs, and remove what dead sessions left.",
    epilog=examples(
        "operator run --once",
        "operator manifests --image REGISTRY/pathways-jupyter:1 | kubectl apply --server-side -f -",
    ),
)
def operator() -> None:
    """The controller of PathwaysJobs, which also removes what dead sessions left. Without a command, it runs."""


@operator.command(
    short_help="Run it until stopped.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: Sequence[str]) -> None:
    """Run it until stopped; the program parses its own options."""
    from pathways_jupyter.operator import main as program

    # It has its own parser because it also runs as a pod, without this command line.
    sys.exit(program.main(list(arguments)))


@operator.command(
    short_help="Print the manifests that install it.",
    epilog="\b\nExamples:\n  pathways-jupyter operator manifests --image REGISTRY/pathways-jupyter:1 "
    "| kubectl apply --server-side -f -",
)
@click.option("--image", required=True, help="An image in which pathways_jupyter is installed.")
@click.option("--namespace", "-n", default="", help="Namespace of the operator; default: pathways-system.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="One leads, others wait.")
@click.option("--metrics-port", default=0, type=click.IntRange(0, 65535), help="Serve Prometheus metrics there.")
@click.option("--json", "as_json", is_flag=True, help="Print one List as JSON instead of YAML documents.")
def manifests(image: str, namespace: str, replicas: int, metrics_port: int, as_json: bool) -> None:
    """Print the definition of PathwaysJob, the operator's permissions (the least it needs) and its Deployment."""
    import yaml

    from pathways_jupyter.service.pathwaysjob import installation

    made = installation.manifests(
        image, namespace=namespace or installation.NAMESPACE, replicas=replicas, metrics_port=metrics_port
    )
    if as_json:
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}, indent=2, allow_nan=False))
    else:
        click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)
