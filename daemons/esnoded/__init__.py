"""`esnoded`, the node agent: it serves one node or thousands of virtual ones, and relays for others."""
