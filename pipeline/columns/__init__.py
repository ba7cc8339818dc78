"""The kernel: sums and judgements over whole columns, in numpy and Arrow. See docs/pipeline-kernel.md."""
