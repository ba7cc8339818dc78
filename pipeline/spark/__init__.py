"""Spark itself: sessions, what executors see, the archive for a cluster, and the SQL server."""
