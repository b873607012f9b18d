"""tracekit: which parallel strategy cost how much time that nothing hid."""
