"""All commands and options, each declared once, for the magics and the command line alike.

Every command of every interface is declared here and in no other room, in one module for each area, so that
argparse's parser for magics, click's for ``pathways-jupyter``, ``--help`` and tab completion agree.
:mod:`.declaration` has the types and the options that several commands take, :mod:`.tables` all commands by name.

Pure data: no parser is imported here. This file imports nothing, so that a caller loads only the area that it needs.
"""
