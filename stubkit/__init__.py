"""The stub author's kit: build a module from C, check it, pack it for a catalogue, sign what a domain publishes."""
