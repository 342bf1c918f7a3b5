"""The Kubernetes API, as much of it as real clients use."""
