"""Documents, modules and compiled code of foreign domains on disk, believed only after checks."""
