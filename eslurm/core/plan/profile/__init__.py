"""What is free when, and the search for a start in it."""
