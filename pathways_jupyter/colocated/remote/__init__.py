"""The part that runs on the TPU hosts.

A sidecar has Python, JAX and what JAX needs there, NumPy and cloudpickle, and nothing of this package: these modules
travel there as source text (see :mod:`pathways_jupyter.colocated.ship`) and are kept in the sidecar's process from call
to call. So they import nothing else but the standard library and each other, and run on any Python from 3.10 on,
whatever the notebook's own is.
"""

# Travels with them, as one of them.
from pathways_jupyter.base import shardings as shardings
