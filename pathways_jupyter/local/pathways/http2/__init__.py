"""As much of HTTP/2 and gRPC as a server needs whose clients are all gRPC's C core.

A thread per connection reads, and answers small requests where it read them: a request that needs no other thread costs
a fraction of what it costs in gRPC's own Python server, and large messages move without being assembled first. Both
ends of the protocol are known here, which is what keeps this small: flow control is generous, and headers are never
compressed beyond HTTP/2's fixed table, because the server's settings say so.
"""
