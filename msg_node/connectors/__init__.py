"""The doors for runtimes: one module a transport."""
