"""The quiet inner room: what is added up, judged and found, whole columns at a time. No I/O, no clock, and no Spark."""
