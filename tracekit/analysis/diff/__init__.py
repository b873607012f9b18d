"""What differs between two runs, and what brings it about. Tables in, rows out."""
