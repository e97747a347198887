"""Several simulated clusters as the cells of one federation: in one time, with one network between them and one store."""
