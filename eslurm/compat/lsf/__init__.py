"""LSF's commands: the options that scripts use, resource requirements, and the tables of `bjobs`. Pure."""
