"""Foundation of all other rooms: errors, settings, events, instance types, hints, retries, interrupts."""
