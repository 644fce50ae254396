"""What all packages share: checks of shapes and parameters, seeds, variables, and the private API that is used."""
