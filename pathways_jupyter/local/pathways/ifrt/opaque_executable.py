"""An executable that XLA knows nothing of: a colocated Python function, or a plugin program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import statuses
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.values import ArraySpec


class OpaqueExecutable:
    """One such executable of one session.

    Attributes:
      kind: What it is, in the plural.
    """

    kind = ""
    name = ""
    device_ids: tuple[int, ...] = ()
    fingerprint = b""

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the outputs of an execution."""
        raise NotImplementedError

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start one execution."""
        raise NotImplementedError

    def describe(self, response: Any) -> None:
        """Empty."""
        nothing = statuses.unimplemented(f"{self.kind} have no layouts or memory statistics")
        nothing.write_to(response.parameter_layouts_error)
        nothing.write_to(response.output_layouts_error)
        nothing.write_to(response.output_memory_kinds.status)
        nothing.write_to(response.compiled_memory_stats_error)
        response.donated_input_indices.SetInParent()

    def cost_analysis(self) -> dict[str, float]:
        """There is none."""
        raise statuses.unimplemented(f"{self.kind} have no cost analysis")

    def text(self) -> str:
        """There is none."""
        raise statuses.unimplemented(f"{self.kind} have no program text")

    def release(self) -> None:
        """Nothing is kept anywhere else."""
