"""The second level of a simulation: jobs whose applications share out their own tasks (R-10..R-14)."""
