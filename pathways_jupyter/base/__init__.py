"""Foundation of all other rooms: errors, settings, events, instance types, sentences, retries, interrupts."""
