"""The jobs: each reads tables, lets transforms work, and commits what comes out."""
