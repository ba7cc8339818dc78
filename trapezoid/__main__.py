"""`python -m trapezoid`."""

from trapezoid.cli import main

if __name__ == "__main__":
    main()
