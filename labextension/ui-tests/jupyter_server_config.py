"""A Jupyter server for the browser tests: no token, its files in a directory of its own."""

import os

from jupyterlab.galata import configure_jupyter_server

configure_jupyter_server(c)  # noqa: F821
c.JupyterNotebookApp.expose_app_in_browser = True  # noqa: F821
c.ServerApp.port = int(os.environ["PATHWAYS_UI_PORT"])  # noqa: F821
c.ServerApp.ip = "127.0.0.1"  # noqa: F821
c.ServerApp.root_dir = os.environ["PATHWAYS_UI_ROOT"]  # noqa: F821
c.ServerApp.allow_root = True  # noqa: F821
# Else each page has the server compare all packages of JupyterLab with those that it was built from.
c.ServerApp.tornado_settings = {"page_config_data": {"buildCheck": False}}  # noqa: F821
if os.environ.get("PATHWAYS_UI_WITHOUT"):
    c.ServerApp.jpserver_extensions = {"pathways_jupyter": False}  # noqa: F821
