"""``pathways-jupyter accept``: the promises of this package as checks on a user's own cluster.

The checks run in the order of :mod:`.plan`. Those that need JAX run in processes of their own (:mod:`.kernel_program`,
:mod:`.kernel_checks`), as a notebook's code does: what hangs or crashes there is a failed check, and killing one is how
some checks begin.
"""
