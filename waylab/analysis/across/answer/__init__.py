"""What a run says in sentences: the answer, the verdict of every rule, facts, and the load of the machine."""
