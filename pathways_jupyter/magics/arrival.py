"""The first that a kernel does which has moved: connect, and load the notebook's variables; see :mod:`.move`."""

from __future__ import annotations

import pathways_jupyter
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import some
from pathways_jupyter.kernel.moved import Moved
from pathways_jupyter.magics import extension, saved
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.render import arrays
from pathways_jupyter.saved import code
from pathways_jupyter.session.kernel import process


def arrive(what: str) -> None:
    """Connect the kernel that has moved. Its first cell shows that, and gets its variables before it runs.

    One that could not move says so there.
    """
    shell, about = process.shell(), Moved.from_json(what)
    notebook = extension.load(shell).magics.notebook
    settings = {**about.settings}
    settings |= {"tpu": settings.pop("instances")} if "instances" in settings else {}
    failed: Exception | None = SessionError(about.failed) if about.failed else None
    try:
        if failed is None:
            pathways_jupyter.connect(**settings, progress=False)
    except Exception as error:
        # Shown, whatever it is: no one reads the log of what runs before the first cell.
        failed = error

    def begin(_: object) -> None:
        # Not before: IPython takes what is there at its start for its own.
        shell.events.unregister("pre_run_cell", begin)
        missing: list[str] = []
        try:
            missing = _import(about, notebook)
            if failed is not None:
                raise failed
            if notebook.screen.in_place:
                notebook.move(notebook.screen.new_output())
                notebook.draw()
            else:
                notebook.screen.show(notebook.card())
            loaded = saved.assigned(notebook, about.save)
            notebook.screen.show(arrays.loaded(about.save, loaded))
            if loaded.kept or loaded.dictionaries:
                hint = "Run the cells that define what is missing, then %pathways load"
                notebook.notify([f"The save {about.save} stays. {hint} {about.save}."])
            else:
                notebook.need().saves.delete(about.save)
        except (Exception, KeyboardInterrupt) as error:
            why = f"{error} {error.hint}" if isinstance(error, PathwaysError) else f"{type(error).__name__}: {error}"
            hint = advice(
                "Connect with {gcs_bucket:{bucket}}; {load:{name}} brings the variables.",
                bucket=about.settings.get("gcs_bucket") or "gs://...",
                name=about.save,
            )
            notebook.notify([f"{about.failed or f'Moved, without its variables: {why}'} {hint}"])
        if missing:
            notebook.notify([f"Not imported: {some(missing)}."])

    shell.events.register("pre_run_cell", begin)


def _import(about: Moved, notebook: NotebookSession) -> list[str]:
    """Import what the notebook has imported; return what that failed for, and why."""
    missing = []
    for name, (module, within) in about.imports.items():
        try:
            value = code.imported((module, within))
            if name == module and "." in name:
                notebook.submodules.add(name)
            else:
                notebook.shell.push({name: value})
        except (Exception, SystemExit) as error:
            missing.append(f"{name} ({error})")
    return missing
