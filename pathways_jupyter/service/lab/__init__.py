"""JupyterLab in the cluster: what it consists of there, how it is started and ended, and how a browser reaches it."""
