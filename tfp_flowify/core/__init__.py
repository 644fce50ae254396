"""The ground that all packages stand on: checks, seeds, units, moments, variables, and private API of others."""
