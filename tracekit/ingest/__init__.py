"""Paths → files → identity of ranks → workers → the tables of a run."""
