"""Remote TPUs in a notebook: IPython magics and a JupyterLab sidebar for Pathways on Google Cloud."""

__version__ = "0.1.0"
