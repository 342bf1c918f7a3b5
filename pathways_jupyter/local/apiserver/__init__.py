"""The Kubernetes API of the embedded cluster: as much of it as real clients use, over a store that outlives it."""
