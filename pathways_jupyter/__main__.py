"""``python -m pathways_jupyter``: the command line, for when its script is not on the PATH."""

from pathways_jupyter.cli import main

main(prog_name="pathways-jupyter")
