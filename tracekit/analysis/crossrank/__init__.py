"""Several ranks together: matched calls, clocks, waiting, verdicts, imbalance."""
