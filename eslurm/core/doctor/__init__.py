"""What can be wrong with a live cluster, and how to tell: judgements only, on what others have measured."""
