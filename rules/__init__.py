"""The matching rules, as data: one TOML file a strategy or family. No code lives here."""
