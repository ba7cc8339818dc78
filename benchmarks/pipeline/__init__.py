"""Benchmarks of the data pipeline: CPU seconds of whole process trees, with DuckDB beside Spark in the same run."""
