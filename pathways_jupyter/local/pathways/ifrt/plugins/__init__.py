"""What a proxy does besides computing: writes and reads arrays in a bucket, moves them, and profiles the hosts."""
