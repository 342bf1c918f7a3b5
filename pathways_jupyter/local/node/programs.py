"""The programs that run in the embedded cluster's pods, the images that stand for them, and what fork servers preload.

Each is imported where it is called, in a fork, so that naming a program loads nothing. There are two fork servers: the
one with JAX serves the programs that use it, and the other one all others, which start with a tenth of the memory.

There is no registry on a laptop. The images of Pathways stand for programs of this package, and so does any image of a
colocated sidecar, which users build; any other image only stands for the machine itself, and its container must say
which command to run. As in a registry, an unknown tag is an error: a client that derives a wrong image fails here, and
not only on a real cluster.

``pip install`` in a container changes nothing outside it. So a pod's programs find this machine's packages, and install
beside them, into a virtual environment that is removed with the pod.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.service import names
from pathways_jupyter.service.images import Image

_LAB_PORT = 8888


def resource_manager(argv: Sequence[str]) -> int:
    """Run a service's resource manager."""
    from pathways_jupyter.local.pathways import resource_manager

    return resource_manager.main(argv)


def worker(argv: Sequence[str]) -> int:
    """Run the worker of one host of a slice."""
    from pathways_jupyter.local.pathways import worker

    return worker.main(argv)


def proxy(argv: Sequence[str]) -> int:
    """Run a session's proxy."""
    from pathways_jupyter.local.pathways import proxy_program

    return proxy_program.main(argv)


def sidecar(argv: Sequence[str]) -> int:
    """Run the sidecar of one host, for colocated Python."""
    from pathways_jupyter.local.pathways import sidecar

    # This process has forked from one that runs this machine's Python, not the pod's: cells find what they install.
    sys.path.insert(0, str(packages(Path(os.environ["VIRTUAL_ENV"]))))
    return sidecar.main(argv)


def operator(argv: Sequence[str]) -> int:
    """Run the operator, the same program as in any other cluster."""
    from pathways_jupyter.operator import main

    return main.program(list(argv))


def lab(argv: Sequence[str]) -> int:
    """Become the lab's host of kernels, which starts ``jupyter lab`` of this environment, both as `argv` says.

    The pods of a real cluster have a loopback interface each; here they share this machine's, where every user of it
    could connect. So the server listens on the unix socket that stands for its port.

    Raises:
      SystemExit: The container asks for another program.
    """
    from pathways_jupyter.local.pathways import links

    python, host = list(argv[:4]), list(argv[4:6])
    if python[:2] != ["python3", "-m"] or host != ["jupyter", "lab"]:
        raise SystemExit(f"This image runs a lab's host of kernels, not {' '.join(argv[:2]) or 'nothing'}.")
    port, options = _LAB_PORT, []
    for option in argv[6:]:
        name, _, value = option.partition("=")
        if name in {"--port", "--ServerApp.port"}:
            port = int(value)
        elif name not in {"--ip", "--ServerApp.ip"}:
            options.append(option)
    if os.geteuid() == 0:
        # In a container, where the option would usually be wrong, the image decides which user it is.
        options.append("--allow-root")
    socket = links.own_socket(port)
    # JupyterLab finds its parts beside this Python; its kernels find what they install into the pod's.
    os.environ["PYTHONPATH"] = str(packages(Path(os.environ["VIRTUAL_ENV"])))
    server = [sys.executable, "-m", "jupyterlab", f"--ServerApp.sock={socket}", *options]
    os.execv(sys.executable, [sys.executable, *python[1:], *server])


def preload() -> None:
    """Import what the programs without JAX need."""
    from pathways_jupyter.local.pathways import resource_manager, worker  # noqa: F401


def preload_jax() -> None:
    """Import what the programs with JAX need.

    JAX itself above all: a proxy that imports it after its fork listens half a second of CPU time later.
    """
    import jax.experimental.colocated_python  # noqa: F401
    import jaxlib.mlir.dialects.func
    import jaxlib.mlir.ir  # noqa: F401

    from pathways_jupyter.local.pathways import proxy_program  # noqa: F401


class ImageError(PathwaysError):
    """The image does not exist here; the message goes into the pod's status."""


@dataclass(frozen=True)
class ContainerProgram:
    """The program of a container.

    Attributes:
      main: Called with the arguments in a fork; None to run the arguments as a command.
      warm: Fork from the process that has imported JAX, unless the container sets variables for JAX.
    """

    main: Callable[[Sequence[str]], int] | None = None
    warm: bool = False


_COMMAND = ContainerProgram()

OPERATOR_IMAGE = "operator"
LAB_IMAGE = "lab"
_SIDECAR_IMAGE = "sidecar"

_PROGRAMS: Mapping[str, ContainerProgram] = {
    names.SERVER_IMAGE: ContainerProgram(worker),
    names.PROXY_IMAGE: ContainerProgram(proxy, warm=True),
    _SIDECAR_IMAGE: ContainerProgram(sidecar, warm=True),
    OPERATOR_IMAGE: ContainerProgram(operator),
    LAB_IMAGE: ContainerProgram(lab),
}


def resolve(
    image: str, command: Sequence[str], args: Sequence[str], *, container: str = ""
) -> tuple[ContainerProgram, list[str]]:
    """Return the program to run for a container, and its arguments; for a command, the first argument is the command.

    Args:
      container: Its name. The image of a colocated sidecar is the user's own, with packages that are installed here.

    Raises:
      ImageError: There is no such image.
    """
    named = Image.parse(image)
    repository = named.name
    if container == names.SIDECAR_CONTAINER and not command:
        return _PROGRAMS[_SIDECAR_IMAGE], list(args)
    program = _PROGRAMS.get(repository)
    if program is not None and (named.digest or (named.tag or "latest") not in tags(repository)):
        raise ImageError(f'failed to pull image "{image}": not found; tags here: {", ".join(tags(repository))}')
    if command:
        return _COMMAND, [*command, *args]
    if program is None:
        raise ImageError(f'failed to pull image "{image}": not found; an embedded cluster runs it only with a command')
    if repository == names.SERVER_IMAGE and "--node_type=resource_manager" in args:
        program = ContainerProgram(resource_manager)
    return program, list(args)


def tags(repository: str) -> tuple[str, ...]:
    """Return the tags that an image of Pathways has here."""
    jax = metadata.version("jax")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    released = (f"python_{python}-jax_{jax}",) if repository == _SIDECAR_IMAGE else ()
    return (f"jax-{jax}", *released, "latest")


def reference(name: str) -> str:
    """Return the full name of an image of Pathways, with the tag of its JAX version."""
    return f"{names.IMAGE_REPOSITORY}/{name}:{tags(name)[0]}"


def make_python(directory: Path) -> None:
    """Make a pod's virtual environment over the packages that are installed here; takes two milliseconds."""
    # Without pip, which is found in the packages below, or is missing here as well.
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    installed = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    # addsitedir() also reads the .pth files there, among them those of editable installs.
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in installed)
    (packages(directory) / "installed_here.pth").write_text(lines, encoding="utf-8")


def packages(directory: Path) -> Path:
    """Return the directory of the environment's installed packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))


def python_variables(directory: Path) -> dict[str, str]:
    """Return the variables by which programs use the environment, `PATH` aside."""
    # pip runs itself with PIP_PYTHON, also when it is called as the pip of another environment.
    return {"VIRTUAL_ENV": str(directory), "PIP_PYTHON": str(directory / "bin" / "python")}
