"""`essatd`, the satellite: it relays broadcasts down and gathers reports up, and keeps no state (E-17)."""
