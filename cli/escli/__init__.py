"""The commands: parse, one call, render. No policy."""
