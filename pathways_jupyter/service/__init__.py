"""Pathways in Kubernetes: the service's JobSet, the proxy Job and its Lease, and who holds which slice."""
