"""`python -m pipeline …`, and what `spark-submit` is given."""

from pipeline.cli.program import app

if __name__ == "__main__":
    app()
