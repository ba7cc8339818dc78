"""The command line of the house: one program, `trapezoid`."""
