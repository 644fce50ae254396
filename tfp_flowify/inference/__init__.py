"""Simulation-based inference: posteriors of parameters given data, learned from simulations."""

from tfp_flowify.inference.posterior import fit_posterior, posterior_flow
from tfp_flowify.inference.tasks import TASKS, Task

__all__ = ["TASKS", "Task", "fit_posterior", "posterior_flow"]
