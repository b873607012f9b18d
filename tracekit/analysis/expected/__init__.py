"""Measured against theory: what each collective should take, what could be hidden, and what differs from the plan."""
