"""PBS's commands: the options that scripts use, and the tables of `qstat`. Pure."""
