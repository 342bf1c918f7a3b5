"""HTTP/2 and gRPC server, limited to what clients on gRPC's C core use.

A thread per connection reads, and answers small requests on the spot: such a request costs a fraction of what it costs
in gRPC's own Python server, and large messages move without being assembled first. It stays small because both ends are
known: flow control is generous, and headers use only HPACK's static table, as the server's settings demand.
"""
