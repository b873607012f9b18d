"""What collectives, steps and pipelines should cost: formulas and simulation, no trace in sight."""
