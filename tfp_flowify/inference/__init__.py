"""Simulation-based inference: posteriors of parameters given data, learned from simulations."""

from tfp_flowify.inference.tasks import TASKS, Task

__all__ = ["TASKS", "Task"]
