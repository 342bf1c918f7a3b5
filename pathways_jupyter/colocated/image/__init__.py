"""Build images of the sidecar with additional packages."""
