"""The time of a run."""

import math
import time


class Clock:
    """Tells how far a run is, in time and in steps, counted from its first start.

    Args:
      minutes: Its budget, or None.
      steps: Number of all its steps, or None.
      seconds_before: Seconds spent before it was resumed.
    """

    def __init__(self, minutes: float | None = None, steps: int | None = None, seconds_before: float = 0.0):
        self.budget = None if minutes is None else 60 * minutes
        self.steps, self.begun = steps, time.perf_counter() - seconds_before

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    def share(self, step: int) -> float:
        """0 at the start, 1 at the end."""
        shares = [step / self.steps] if self.steps else []
        return min(1.0, max([*shares, self.seconds / self.budget] if self.budget else shares))


def clock_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock_time(61.2), clock_time(3700)
    ('1:01', '1:01:40')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
