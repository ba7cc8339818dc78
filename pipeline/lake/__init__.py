"""Tables of a lake: files, commits and versions, on a disk or in an object store, and how they are read."""
