"""What is exchanged with other operators: forms of the files, keys, settings, and the post between us."""
