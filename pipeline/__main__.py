"""`python -m pipeline …`, and what `spark-submit` is given."""

from pipeline.cli import app

if __name__ == "__main__":
    app()
