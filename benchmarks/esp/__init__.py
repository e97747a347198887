"""ESP with real jobs on virtual nodes, and the simulator's prediction."""
