"""Stories: the demo and the race of the families."""
