"""A federation of many cells in virtual time: the strategies of the core over a store with drawn delays."""
