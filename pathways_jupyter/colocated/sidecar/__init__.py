"""The sidecar: the program beside each worker that runs colocated Python, and images of it with more packages."""
