"""Tasks of simulation-based inference with posteriors that are known, after Lueckmann et al. 2021.

A task has a prior over parameters, a simulator from parameters to data, and reference samples of the posterior given
data: in closed form where there is one, else from a fine grid or long chains over the known likelihood. Simulators and
references are written anew here, in NumPy, for many parameters at once.
"""

import math
from abc import ABC, abstractmethod

import keras
import numpy as np

from tfp_flowify.inference.reference import sample_chains, sample_grid


class Task(ABC):
    """A prior, a simulator and reference posteriors.

    Attributes:
      name: Name of the task.
      parameters: Names of the parameters.
      low, high: The box that the prior lives on; None where it has no bounds.

    >>> theta, x = TASKS["two_moons"]().draw(5, seed=0)
    >>> theta.shape, x.shape
    ((5, 2), (5, 2))
    """

    name: str
    parameters: tuple
    low = high = None

    @abstractmethod
    def prior(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """n draws of the parameters, (n, d)."""

    @abstractmethod
    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Data for each row of parameters, (n, m)."""

    @abstractmethod
    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        """n samples of the posterior given data x (m,)."""

    def summary_network(self) -> keras.Model | None:
        """A Keras model that embeds data, to be trained along; None where the flow takes data as they are."""
        return None

    def draw(self, n: int, seed: int) -> tuple:
        """Parameters and data of n simulations."""
        generator = np.random.default_rng(seed)
        theta = self.prior(n, generator)
        x = self.simulate(theta, generator).astype(np.float32)
        theta = theta.astype(np.float32)
        if self.low is not None:  # Rounding must not lead to the sides, where there is no density.
            low, high = np.float32(self.low), np.float32(self.high)
            theta = np.clip(theta, np.nextafter(low, high), np.nextafter(high, low))
        return theta, x


class Boxed(Task):
    """A task with a uniform prior on the box [-side, side]^d."""

    side: float

    def __init__(self):
        self.low, self.high = ([sign * self.side] * len(self.parameters) for sign in (-1.0, 1.0))

    def prior(self, n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(-self.side, self.side, size=(n, len(self.parameters)))


class GaussianLinear(Task):
    """x = theta + noise in ten dimensions, prior and noise normal with variance 0.1: the posterior is normal."""

    name, parameters = "gaussian_linear", tuple(f"theta {i}" for i in range(10))
    variance = 0.1

    def prior(self, n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.normal(0, math.sqrt(self.variance), size=(n, 10))

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return theta + generator.normal(0, math.sqrt(self.variance), size=theta.shape)

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.normal(x / 2, math.sqrt(self.variance / 2), size=(n, 10))


class GaussianLinearUniform(Boxed):
    """The same with a uniform prior on [-1, 1]: the posterior is a normal cut off at the sides."""

    name, parameters, side = "gaussian_linear_uniform", tuple(f"theta {i}" for i in range(10)), 1.0
    variance = 0.1

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return theta + generator.normal(0, math.sqrt(self.variance), size=theta.shape)

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        return _inside(lambda size: generator.normal(x, math.sqrt(self.variance), size=size), n, self.low, self.high)


class GaussianMixture(Boxed):
    """x around theta in the plane, by a wide or by a narrow normal."""

    name, parameters, side = "gaussian_mixture", ("theta 0", "theta 1"), 10.0

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return theta + self._noise(theta.shape, generator)

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        return _inside_rows(lambda count: x + self._noise((count, 2), generator), n, self.low, self.high)

    @staticmethod
    def _noise(size, generator):
        scale = np.where(generator.uniform(size=(size[0], 1)) < 0.5, 1.0, 0.1)
        return scale * generator.normal(size=size)


class TwoMoons(Boxed):
    """x is a point on a small half circle, moved by theta: a posterior of two moons.

    The half circle p is moved, x = p + (-|q1|, q2), with q the parameters turned by 45 degrees. So given x, p drawn
    anew tells q2, and q1 up to its sign.
    """

    name, parameters, side = "two_moons", ("theta 0", "theta 1"), 1.0

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        first, second = (theta[:, 0] + theta[:, 1]) / math.sqrt(2), (theta[:, 1] - theta[:, 0]) / math.sqrt(2)
        return self._moon(len(theta), generator) + np.stack([-np.abs(first), second], axis=1)

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        def draw(count):
            moon = self._moon(count, generator)
            first, second = moon[:, 0] - x[0], x[1] - moon[:, 1]
            first = np.where(first >= 0, first, np.nan) * generator.choice([-1, 1], size=count)
            return np.stack([first - second, first + second], axis=1) / math.sqrt(2)

        return _inside_rows(draw, n, self.low, self.high)

    @staticmethod
    def _moon(n, generator):
        angle, radius = generator.uniform(-math.pi / 2, math.pi / 2, n), generator.normal(0.1, 0.01, n)
        return np.stack([radius * np.cos(angle) + 0.25, radius * np.sin(angle)], axis=1)


class Slcp(Boxed):
    """Simple likelihood, complex posterior: four points of a normal whose mean, deviations and correlation are theta.

    The likelihood does not change with the signs of the third and fourth parameter, so the posterior has four modes.
    """

    name, parameters, side = "slcp", tuple(f"theta {i}" for i in range(5)), 3.0

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        noise = generator.normal(size=(len(theta), 4, 2))
        mean, first, second, rho = self._moments(theta)
        u = noise[..., 0]
        v = rho[:, None] * u + np.sqrt(1 - rho[:, None] ** 2) * noise[..., 1]
        points = np.stack([mean[:, :1] + first[:, None] * u, mean[:, 1:] + second[:, None] * v], axis=-1)
        return points.reshape(-1, 8)

    def log_likelihood(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The log-density of x (8,) at parameters (n, 5), up to a constant."""
        mean, first, second, rho = self._moments(theta)
        points = np.reshape(x, (4, 2))
        u = (points[:, 0] - mean[:, :1]) / first[:, None]
        v = (points[:, 1] - mean[:, 1:]) / second[:, None]
        rest = 1 - rho**2
        square = np.sum(u**2 - 2 * rho[:, None] * u * v + v**2, axis=1) / rest
        return -0.5 * square - 4 * (np.log(first) + np.log(second) + 0.5 * np.log(rest))

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        """Chains over the quarter where both are positive, and then signs by chance."""
        low, high = np.array(self.low), np.array(self.high)
        low[2:4] = 1e-3

        def log_density(theta):
            inside = np.all((theta > low) & (theta < high), axis=1)
            return np.where(inside, self.log_likelihood(np.clip(theta, low, high), x), -np.inf)

        theta = sample_chains(log_density, lambda count: generator.uniform(low, high, (count, 5)), n, generator)
        theta[:, 2:4] *= generator.choice([-1, 1], size=(n, 2))
        return theta

    @staticmethod
    def _moments(theta):
        return theta[:, :2], theta[:, 2] ** 2 + 1e-6, theta[:, 3] ** 2 + 1e-6, np.tanh(theta[:, 4]) * (1 - 1e-7)


class Sir(Task):
    """An epidemic: of a million people one is infected; ten counts among a thousand tested people in 160 days.

    Parameters are the logarithms of the contact rate and of the recovery rate. The summary network sees the counts as a
    sequence.
    """

    name, parameters = "sir", ("log contact rate", "log recovery rate")
    mean, deviation = np.log([0.4, 0.125]), np.array([0.5, 0.2])
    population, tested, days, steps_per_day = 1e6, 1000, np.linspace(0, 160, 11)[1:], 4

    def prior(self, n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.normal(self.mean, self.deviation, size=(n, 2))

    def simulate(self, theta: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return generator.binomial(self.tested, self.infected(theta)) / self.tested

    def infected(self, theta: np.ndarray) -> np.ndarray:
        """The share of people who are infected on the days of the counts, (n, 10)."""
        contact, recovery = np.exp(np.asarray(theta, np.float64)).T
        state = np.stack([np.full(len(theta), 1 - 1 / self.population), np.full(len(theta), 1 / self.population)])

        def rate(state):
            new = contact * state[0] * state[1]
            return np.stack([-new, new - recovery * state[1]])

        step, shares = 1 / self.steps_per_day, []
        for day in range(int(self.days[-1]) * self.steps_per_day):  # Runge and Kutta's method of fourth order.
            k1 = rate(state)
            k2 = rate(state + 0.5 * step * k1)
            k3 = rate(state + 0.5 * step * k2)
            k4 = rate(state + step * k3)
            state = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            if (day + 1) % (16 * self.steps_per_day) == 0:
                shares.append(np.clip(state[1], 0, 1))
        return np.stack(shares, axis=1)

    def reference(self, x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
        """From a fine grid around the mode."""
        counts = np.round(np.asarray(x, np.float64) * self.tested)

        def log_density(theta):
            share = np.clip(self.infected(theta), 1e-12, 1 - 1e-12)
            likelihood = np.sum(counts * np.log(share) + (self.tested - counts) * np.log1p(-share), axis=1)
            return likelihood - 0.5 * np.sum(((theta - self.mean) / self.deviation) ** 2, axis=1)

        return sample_grid(log_density, self.mean - 4 * self.deviation, self.mean + 4 * self.deviation, n, generator)

    def summary_network(self) -> keras.Model:
        counts = keras.Input((10,))
        hidden = keras.layers.Reshape((10, 1))(keras.ops.log(counts + 1e-3))
        for filters in (16, 32):
            hidden = keras.layers.Conv1D(filters, 3, padding="same", activation="gelu")(hidden)
        hidden = keras.layers.Dense(64, activation="gelu")(keras.layers.Flatten()(hidden))
        return keras.Model(counts, keras.layers.Dense(8)(hidden), name="summary")


#: All tasks by name.
TASKS = {task.name: task for task in (TwoMoons, GaussianLinear, GaussianLinearUniform, Slcp, GaussianMixture, Sir)}


def _inside(draw, n, low, high):
    """Independent draws for each parameter, again where they are outside of the box."""
    x = draw((n, len(low)))
    while np.any(outside := (x < low) | (x > high)):
        x = np.where(outside, draw(x.shape), x)
    return x


def _inside_rows(draw, n, low, high, rounds=10_000):
    """Draws in the box, all parameters at once; others, and NaN, are left out."""
    found, count = [], 0
    for _ in range(rounds):
        x = draw(max(n, 1000))
        found.append(x[np.all((x >= low) & (x <= high), axis=1)])
        count += len(found[-1])
        if count >= n:
            return np.concatenate(found)[:n]
    raise ValueError(f"Of {rounds} rounds of draws, {count} of {n} lie in the box of the prior.")
