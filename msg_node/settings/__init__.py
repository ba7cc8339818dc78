"""Settings: their model, reading them from TOML, checking them, and what they mean for the parts."""
