"""OpenAPI documents, made from the field tables: what ``kubectl explain`` and ``kubectl apply`` read."""

from __future__ import annotations

from pathways_jupyter.local.apiserver.resources import Object, Registry


def document(registry: Registry, path: str) -> Object | None:
    """The document at `path`, or None when there is none."""
    return None
