"""One module per scene; each has a function that plays it against a fleet and returns a section."""
