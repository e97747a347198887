"""Records and vocabulary: jobs, nodes, accounts, facts, messages, the agents' protocol."""
