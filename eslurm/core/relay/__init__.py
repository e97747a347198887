"""The communication tree: grouping, ordered node lists, merged results, and the relay protocol."""
