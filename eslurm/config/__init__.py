"""The configuration file: its sections, and their translation for the core."""
