"""``%pathways fetch``: files that cells of a kernel beside the chips have written, for the notebook's own machine."""

from __future__ import annotations

import socket

from pathways_jupyter.actions.shell import Values
from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ClusterError, ConfigError, SessionError
from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.kernel import fetch as files
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.magics.waiting import Waiting
from pathways_jupyter.render.progress import FETCHING
from pathways_jupyter.render.view import View, said
from pathways_jupyter.session.kernel import process

_LONG_SECONDS = 1.0
"""Time before the progress is shown."""


def fetch(notebook: NotebookSession, values: Values) -> View:
    """Bring files of the pod to the notebook's folder; a cut of the line is waited for."""
    kernel = process.connection_file()
    path = kernel.with_name(files.SOCKET) if kernel is not None else None
    if kernel is None or path is None or not path.exists():
        raise ConfigError(
            "This kernel runs on the machine that has its files.",
            hint="A kernel beside the chips fetches what its cells have written there: pathways-jupyter kernel add.",
        )
    folder = kernel.with_name(files.FOLDER).resolve()
    chosen = files.choose(folder, [str(each) for each in values["paths"]])
    try:
        with (
            Waiting(notebook.screen, titles=FETCHING, after=_LONG_SECONDS) as waiting,
            socket.socket(socket.AF_UNIX) as to_machine,
        ):
            to_machine.connect(str(path))

            def report(arrived: int, total: int) -> None:
                waiting.enter("fetch", f"{size(arrived)} of {size(total)}")

            with interrupts.raise_sigint():
                fetched = files.send(to_machine, folder, chosen, report)
    except KeyboardInterrupt:
        raise SessionError("Fetching was interrupted.", hint="Run it again.") from None
    except OSError as error:
        raise ClusterError(f"The notebook's machine cannot be reached: {error}.", hint="Restart the kernel.") from error
    waiting.done()
    same = f" {count(len(fetched.same), 'file')} there already." if fetched.same else ""
    if not fetched.written:
        return said(f"Nothing to fetch:{same}", fetched)
    what = f"{count(len(fetched.written), 'file')} ({size(fetched.size)})"
    return said(f"Fetched {what} into {fetched.folder}: {some(fetched.written)}.{same}", fetched)
