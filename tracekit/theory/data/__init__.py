"""Data only: models.toml and hardware.toml."""
