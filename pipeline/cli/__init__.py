"""`trapezoid pipeline …`: commands, their options, and what a terminal shows."""
