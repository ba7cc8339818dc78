"""Traffic of several domains as their nodes would have written it down, with faults planted and counted."""
