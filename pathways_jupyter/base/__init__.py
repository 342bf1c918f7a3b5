"""What every other room stands on: errors, settings, events, instance types, sentences, retries, interrupts."""
