"""Pure parts of the sandbox: codec, gate, budgets, grants, life cycle, filter programs."""
