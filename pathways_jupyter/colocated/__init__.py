"""Python on the TPU hosts: functions, notebook cells, and the sidecar that runs them."""
