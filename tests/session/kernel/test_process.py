"""Facts of a process about itself, as a kernel and as a script."""

import sys
from types import ModuleType

import scripts
from jupyter_client.manager import KernelManager
from kernel_transport import ipc

from pathways_jupyter.session.kernel import process


def test_a_script_has_no_kernel_and_no_shell(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert (process.kernel_id(), process.shell()) == ("", None)


def test_the_servers_name_for_the_notebook_is_used(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert process.notebook() == ""
    monkeypatch.setenv("JPY_SESSION_NAME", "work/a.ipynb")
    assert process.notebook() == "work/a.ipynb"


def test_a_scripts_variables_are_its_own_and_those_of_its_running_functions(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    module = ModuleType("__main__")
    vars(module).update({"process": process, "whole": 1, "_hidden": 2})
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec("def main():\n    own, whole = 3, 4\n    return process.variables()\nfound = main()", vars(module))
    assert module.found["own"] == 3
    assert module.found["whole"] == 1
    assert not [name for name in module.found if name.startswith("_")]


def test_a_kernel_knows_its_id_from_the_name_of_its_connection_file(open_notebook, tmp_path):
    manager = KernelManager(connection_file=str(tmp_path / "kernel-5f2c.json"), **ipc(tmp_path))
    notebook = open_notebook(manager=manager)
    printed = notebook.run("from pathways_jupyter.session.kernel import process\nprint(process.kernel_id())")
    assert printed.text == "5f2c\n"


def test_a_script_that_only_imports_ipykernel_has_no_id():
    done = scripts.run(
        "import ipykernel.kernelapp\nfrom pathways_jupyter.session.kernel import process\nprint([process.kernel_id()])"
    )
    assert done.stdout == "['']\n", done.stderr
