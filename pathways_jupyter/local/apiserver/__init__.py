"""The Kubernetes API of the embedded cluster: the part that real clients use, over a store that outlives the server."""
