"""Runtimes and their sessions: open, resume, grace, proof, guests."""
