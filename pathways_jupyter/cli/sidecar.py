"""``pathways-jupyter sidecar``: build images of the colocated Python sidecar with additional packages."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from pathways_jupyter.cli.declared import examples
from pathways_jupyter.cli.terminal import show_json


@click.group(epilog=examples("sidecar build --requirements requirements.txt --dry-run"))
def sidecar() -> None:
    """The colocated Python sidecar that runs %%colocated cells on TPU hosts."""


@sidecar.command(
    epilog="\b\nExamples:\n"
    "  pathways-jupyter sidecar build --requirements requirements.txt --jax-version 0.10.0 --dry-run\n"
    "  pathways-jupyter sidecar build --jax-version 0.10.0 --push us-docker.pkg.dev/my-project/images"
)
@click.option(
    "--requirements",
    "path",
    type=click.Path(path_type=Path),
    default=Path("requirements.txt"),
    show_default=True,
    help="The packages to add, one per line.",
)
@click.option(
    "--jax-version", default="", help="JAX version of the notebooks that will use it; default: the one installed here."
)
@click.option("--push", default="", metavar="REPOSITORY", help="Push the built image to this repository.")
@click.option("--base-image", default="", metavar="IMAGE", help="Base image; default: the released sidecar.")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("sidecar-image"), help="Directory of the build context."
)
@click.option("--dry-run", is_flag=True, help="Write the build context, and print the commands without running them.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build(
    path: Path,
    jax_version: str,
    push: str,
    base_image: str,
    folder: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build a sidecar image with the packages of a requirements file.

    What the sidecar has keeps its version. Without docker or podman on this machine, the build context is written
    and the commands for another machine are printed.
    """
    from pathways_jupyter.colocated import image_build as builder

    if not jax_version:
        # From the metadata, because importing JAX takes seconds.
        jax_version = version("jax")
    planned = builder.plan(path, jax_version, push=push, base=base_image, folder=folder)
    written = builder.write(planned)
    if not dry_run:
        builder.build(planned)
    if as_json:
        show_json(
            {
                "image": planned.image,
                "base": planned.base,
                "files": [str(each) for each in written],
                "commands": planned.how(),
                "built": not dry_run,
            }
        )
        return
    click.echo(f"{'Would build' if dry_run else 'Built'} {planned.image}")
    click.echo(f"  on {planned.base}")
    click.echo(f"  with the packages of {path}")
    if dry_run:
        click.echo("  by running:" if planned.runner else "  on a machine with docker or podman, by running:")
        for command in planned.how():
            click.echo(f"    {command}")
    click.echo(f"Use it as the image of the container colocated-python-sidecar: {planned.image}")
