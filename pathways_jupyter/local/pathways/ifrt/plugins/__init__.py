"""Work of a proxy besides computing: it writes and reads arrays in a bucket, moves them, and profiles the hosts."""
