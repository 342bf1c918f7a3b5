"""The sidecar: the program beside each worker that runs colocated Python for the proxies."""
