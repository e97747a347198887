"""How a cell finds nodes of other cells for a job: one interface, and the strategies."""
