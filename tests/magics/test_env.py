"""``%pathways env``: what a notebook's own subprocesses need to share its session."""

import sys

import pytest

pytestmark = pytest.mark.thorough

CHILD = "import jax; print('child', jax.devices()[0].platform, len(jax.devices()), int(jax.numpy.arange(8).sum()))"
LOAD = "%load_ext pathways_jupyter"
CONNECT = "%pathways connect --local --tpu tpuv6e:2x2=1"
NAMES = "('JAX_PLATFORMS', 'JAX_BACKEND_TARGET', 'IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS')"
SEEN = f"import os; print([os.environ.get(name) for name in {NAMES}])"


def test_programs_that_a_notebook_starts_share_its_session_until_it_disconnects(cluster, notebook):

    def joined(code):
        """Return the output of a cell, whose pieces arrive as the child writes them."""
        return "".join(output.get("text", "") for output in notebook.run(code).outputs)

    notebook.run(LOAD)
    before = notebook.run(SEEN).text
    assert "This notebook is not connected." in notebook.run("%pathways env").shown
    assert notebook.run(CONNECT).status == "ok"
    notebook.run("import jax; x = jax.numpy.arange(8)")
    assert notebook.run(SEEN).text == before
    shown = notebook.run("%pathways env").text
    assert "export JAX_PLATFORMS=proxy" in shown
    assert "export JAX_BACKEND_TARGET=grpc://unix:/" in shown
    assert notebook.run(SEEN).text == before
    assert "Set for every process that this notebook starts" in notebook.run("%pathways env --set").text
    assert "child tpu 4 28" in joined(f'!{sys.executable} -c "{CHILD}"')
    assert "child tpu 4 28" in joined(f'%%bash\n{sys.executable} -c "{CHILD}"')
    # The notebook's own arrays and devices are as they were.
    assert "28 4 tpu" in notebook.run("print(int(x.sum()), len(jax.devices()), jax.devices()[0].platform)").text
    notebook.run("%pathways reconnect --yes")
    assert "child tpu 4 28" in joined(f'!{sys.executable} -c "{CHILD}"')
    assert notebook.run("%pathways disconnect").status == "ok"
    assert notebook.run(SEEN).text == before
    assert "cpu" in notebook.run("print(jax.devices()[0].platform)").text


def test_variables_that_are_set_before_jax_is_used_leave_it_as_it_was(cluster, notebook):
    """JAX looks for plugins at its first use of a device, which may come after the variables are set."""
    notebook.run(LOAD)
    assert notebook.run(CONNECT).status == "ok"
    shared = notebook.run("import pathways_jupyter; _ = pathways_jupyter.current_session().environment(share=True)")
    assert shared.status == "ok", shared.shown
    look = (
        "import jax, jax.extend.backend as backend\n"
        "print('now', jax.devices()[0].platform, backend.register_backend_factory.__qualname__)"
    )
    assert "now tpu InitializeGuard" in notebook.run(look).text
    notebook.run("%pathways disconnect")
    assert "now cpu register_backend_factory" in notebook.run(look).text
