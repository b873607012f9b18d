"""Pipelines: which rank holds which stage, what each did when, the schedule behind it, and where the bubble is from."""
