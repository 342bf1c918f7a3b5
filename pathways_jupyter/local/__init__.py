"""A cluster on your laptop: a Kubernetes API, pods as processes, and a Pathways for CPUs."""
