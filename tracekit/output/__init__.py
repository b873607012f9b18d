"""One module an output: each takes a run's tables, none reads a trace or computes a metric."""
