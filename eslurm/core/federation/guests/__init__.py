"""Jobs that span several cells: the nodes that other cells hold for them, and those held here for others (ADR 32)."""
