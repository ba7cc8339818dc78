"""The pure part: policies compiled to closures, the gate and its rates. No I/O, no clock, no randomness, no logging."""
