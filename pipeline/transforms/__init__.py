"""What is computed, from tables to tables: nothing here reads, writes, collects, or knows the time."""
