"""Pure part of the pipeline: sums, judgements and findings over whole columns. No I/O, no clock, and no Spark."""
