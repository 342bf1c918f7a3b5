"""XProf's pages about one directory of traces, on a unix socket: a program of its own, which the Jupyter server starts.

XProf's own command listens on all addresses of the machine, without authentication. This one has no port, and no server
for other machines that would help it. It ends with the process that holds the other end of its standard input, or
without use.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

_IDLE_SECONDS = 1800.0


def main() -> None:
    """Serve the traces in the directory of the first argument on the socket of the second; print a line once it does.

    The socket's directory is its own, and removed at the end.
    """
    from cheroot import wsgi
    from xprof import server

    directory, socket = sys.argv[1:]
    context = server.TBContext(directory, server.DataProvider(directory), server.TBContext.Flags(False))
    # A trace is taken by the session, whose client the proxy knows.
    context.hide_capture_profile_button = True
    context.enable_tab_name_label, context.src_prefix = False, None
    pages = server.make_wsgi_app(server.ProfilePluginLoader().load(context))
    used = time.monotonic()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        nonlocal used
        used = time.monotonic()
        return pages(environ, start_response)  # type: ignore[no-any-return]

    def end(wait: Callable[[], object]) -> None:
        wait()
        shutil.rmtree(os.path.dirname(socket), ignore_errors=True)
        os._exit(0)

    def idle() -> None:
        while (left := used + _IDLE_SECONDS - time.monotonic()) > 0:
            time.sleep(left)

    for wait in (sys.stdin.read, idle):
        threading.Thread(target=end, args=(wait,), daemon=True).start()
    serving = wsgi.Server(socket, application)
    serving.prepare()
    print("ready", flush=True)
    serving.serve()


if __name__ == "__main__":
    main()
