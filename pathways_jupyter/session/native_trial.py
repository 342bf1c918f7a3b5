"""Have jaxlib's native code read the environment; run as a file, without the package, in a process that may abort.

Each step is announced on standard output before and after it, so that the parent knows a step that ended the process,
whatever exit code that gave it.
"""

import contextlib
import sys

FLAGS, CLIENT = "flags", "client"
_NO_SOCKET = "grpc://unix:/dev/null/none"


def main(steps: list[str]) -> None:
    """Run `steps` in order, as far as this environment has what they need."""
    from jaxlib import xla_client

    for step in steps:
        print("begin", step, flush=True)
        if step == FLAGS:
            # The first options read XLA_FLAGS, as the first client does.
            xla_client.CompileOptions()
        # The client reads its variables when it is made, and then finds no proxy.
        with contextlib.suppress(Exception):
            if step == CLIENT:
                from jaxlib import _ifrt_proxy

                options = _ifrt_proxy.ClientConnectionOptions()
                options.connection_timeout_in_seconds = 1
                _ifrt_proxy.get_client(_NO_SOCKET, options)
        print("end", step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
