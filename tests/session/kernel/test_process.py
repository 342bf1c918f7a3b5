"""Facts of a process about itself where it is no kernel."""

import sys
from types import ModuleType

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


def test_its_session_is_the_one_that_it_has_connected(connected):
    assert process.session() is connected
    connected.disconnect()
    assert process.session() is None


def test_a_scripts_variables_are_its_own_and_those_of_its_running_functions(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    module = ModuleType("__main__")
    vars(module).update({"process": process, "whole": 1, "_hidden": 2})
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec("def main():\n    own, whole = 3, 4\n    return process.variables()\nfound = main()", vars(module))
    assert module.found["own"] == 3
    assert module.found["whole"] == 1
    assert not [name for name in module.found if name.startswith("_")]
