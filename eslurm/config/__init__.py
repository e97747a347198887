"""The configuration file: its sections, and their translation into what the core knows."""
