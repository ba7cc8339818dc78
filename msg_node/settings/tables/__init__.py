"""The tables of `node.toml`, as types: what an operator may write. A file for each subject, and nothing else in it."""
