"""The program that runs on each host. It is sent over the connection, so it uses Python's standard library only."""
