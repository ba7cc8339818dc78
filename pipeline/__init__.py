"""What messaging nodes wrote down, read with Spark: statements, reconciliation, policy replay, stub health, abuse."""
