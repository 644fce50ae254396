"""Pure functions: the matrix exponential, the geometry of patches, rational-quadratic splines."""

from tfp_flowify.math.expm import expm
from tfp_flowify.math.patches import Patches
from tfp_flowify.math.spline import spline_forward, spline_inverse, spline_knots, spline_table

__all__ = ["Patches", "expm", "spline_forward", "spline_inverse", "spline_knots", "spline_table"]
