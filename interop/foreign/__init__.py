"""Simulators of messaging nodes of other makes, as they were observed: to federate with what cannot be installed."""
