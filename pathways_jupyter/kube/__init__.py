"""Kubernetes and nothing else: credentials, requests, watches, pods and port-forwards on plain JSON objects."""
