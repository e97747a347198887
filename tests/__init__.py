"""All tests, by kind: unit, property, contract, sim, integration; golden holds the expected texts."""
