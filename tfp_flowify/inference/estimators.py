"""Posterior estimators that are asked in one way: flows of this library, and of another to compare with."""

import time

import numpy as np

from tfp_flowify.core.seeds import seeded
from tfp_flowify.inference.posterior import LEARNING_RATE, LOWER, PATIENCE, TIMES, fit_posterior, posterior_flow
from tfp_flowify.inference.tasks import Task


class FlowEstimator:
    """A flow of this library, made for a task and trained on its simulations.

    Args:
      task: A `Task`.
      theta, x: Parameters and data of simulations.
      minutes: Time for training.
      seed: Seed for weights and order.
    """

    name = "tfp_flowify"

    def __init__(self, task: Task, theta: np.ndarray, x: np.ndarray, minutes: float, seed: int = 0):
        with seeded(seed):
            condition = task.summary_network() or x.shape[1:]
            self.flow = posterior_flow(len(task.parameters), condition, task.low, task.high)
        self.figures = fit_posterior(self.flow, theta, x, minutes, batch_size_for(len(theta)), seed)

    def sample(self, x: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
        """n samples for each row of data: (n, rows, d)."""
        drawn = self.flow.sample(n * len(x), seed=seed, condition=np.tile(x, (n, 1)), batch_size=10_000)
        return np.asarray(drawn).reshape(n, len(x), -1)

    def log_prob(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Log-densities (n, rows) of parameters (n, rows, d) given rows of data."""
        flat = np.asarray(theta, np.float32).reshape(-1, theta.shape[-1])
        rows = np.tile(x, (len(theta), 1))
        return np.asarray(self.flow.log_prob(flat, condition=rows, batch_size=10_000)).reshape(theta.shape[:2])


class ZukoEstimator:
    """The neural spline flow of zuko with its default sizes but for five transforms of 2 x 64 units, in PyTorch.

    It is trained in the same way, on standardized values: Adam with a rate that falls along a cosine over the time that
    there is, the best weights by validation kept, the rate lowered where validation does not improve. It does not know
    the box of a prior, so samples may leave it.
    """

    name = "zuko"

    def __init__(self, task: Task, theta: np.ndarray, x: np.ndarray, minutes: float, seed: int = 0):
        try:
            import torch
            import zuko
        except ImportError as error:
            raise ImportError(f"{error}. To compare with zuko: pip install torch zuko") from error
        self._torch = torch
        torch.manual_seed(seed)
        self._scale = [(a.mean(axis=0), a.std(axis=0) + 1e-6) for a in (theta, x)]
        theta, x = [
            torch.tensor((a - m) / s, dtype=torch.float32) for a, (m, s) in zip((theta, x), self._scale, strict=True)
        ]
        self._flow = zuko.flows.NSF(theta.shape[1], x.shape[1], transforms=5, hidden_features=(64, 64))
        self.figures = self._fit(theta, x, minutes, batch_size_for(len(theta)))

    def _fit(self, theta, x, minutes, batch_size):
        torch, begun, count = self._torch, time.perf_counter(), len(theta) // 10
        optimizer = torch.optim.Adam(self._flow.parameters(), LEARNING_RATE)
        steps = -(-(len(theta) - count) // batch_size)
        patience, best, state, waited, lowered, epochs = max(2, -(-PATIENCE // steps)), np.inf, None, 0, 0, 0

        def share():
            return min(1.0, (time.perf_counter() - begun) / (60 * minutes))

        while share() < 1 and lowered < TIMES:
            for rows in (count + torch.randperm(len(theta) - count)).split(batch_size):
                for group in optimizer.param_groups:
                    group["lr"] = LEARNING_RATE * LOWER**lowered * 0.5 * (1 + np.cos(np.pi * share()))
                loss = -self._flow(x[rows]).log_prob(theta[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._flow.parameters(), 5.0)
                optimizer.step()
                if share() >= 1:
                    break
            with torch.no_grad():
                validation = -self._flow(x[:count]).log_prob(theta[:count]).mean().item()
            epochs, waited = epochs + 1, waited + 1
            if validation < best:
                best, waited = validation, 0
                state = {name: value.clone() for name, value in self._flow.state_dict().items()}
            elif waited >= patience:
                waited, lowered = 0, lowered + 1
                self._flow.load_state_dict(state)
        self._flow.load_state_dict(state)
        nats = -best - float(np.sum(np.log(self._scale[0][1])))
        return {"validation": nats, "epochs": epochs, "seconds": time.perf_counter() - begun}

    def sample(self, x: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
        """n samples for each row of data: (n, rows, d)."""
        torch, (mean, deviation) = self._torch, self._scale[0]
        torch.manual_seed(seed)
        with torch.no_grad():
            return self._flow(self._given(x)).sample((n,)).numpy() * deviation + mean

    def log_prob(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Log-densities (n, rows) of parameters (n, rows, d) given rows of data."""
        torch, (mean, deviation) = self._torch, self._scale[0]
        with torch.no_grad():
            scaled = torch.tensor((theta - mean) / deviation, dtype=torch.float32)
            return self._flow(self._given(x)).log_prob(scaled).numpy() - np.sum(np.log(deviation))

    def _given(self, x):
        mean, deviation = self._scale[1]
        return self._torch.tensor((x - mean) / deviation, dtype=self._torch.float32)


def batch_size_for(simulations: int) -> int:
    """Larger batches for more simulations."""
    return 128 if simulations < 50_000 else 512


#: Estimators by name.
ESTIMATORS = {estimator.name: estimator for estimator in (FlowEstimator, ZukoEstimator)}
