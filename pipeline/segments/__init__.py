"""Segments of nodes: found, verified, judged line by line, and made rows; and the ledger of what became of each."""
