"""A small Kubernetes client: credentials, requests, watches, logs and port-forwards, on plain JSON objects."""
