"""Pathways for CPUs: resource manager, worker, proxy and sidecar as programs."""
