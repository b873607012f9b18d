"""One module a format: bytes → `tracekit.model.RankTrace`."""
