"""What operators see and change while the node runs."""
