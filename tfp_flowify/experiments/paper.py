"""The experiments: those of the paper, with its figures, and the best networks."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A run of the paper, or one of ours.

    Args:
      data, model: See `tfp_flowify.experiments.Options`.
      paper: The paper's figure, bits per dimension or nats; None for networks that it does not have.
      minutes: Time that it is given here.
      noise: For the comparison of kinds of noise: which one.
    """

    data: str
    model: str
    paper: float | None
    minutes: float
    noise: str | None = None

    @property
    def name(self) -> str:
        return "_".join([self.data, self.model, *([self.noise] if self.noise else [])])

    @property
    def is_image(self) -> bool:
        return self.data in ("mnist", "cifar10")

    def arguments(self, minutes: float | None = None) -> list:
        """The arguments of `tfp-flowify train`, but for folders."""
        noise = ["--noise", self.noise] if self.noise else []
        return ["--data", self.data, "--model", self.model, *noise, "--minutes", f"{minutes or self.minutes:g}"]


MODELS = {
    "fmlp": "fMLP",
    "fconv1": "fConv1",
    "fconv2": "fConv2",
    "fconv1_nsf": "fConv1 + NSF",
    "fconv2_nsf": "fConv2 + NSF",
}
SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
PAPER_MNIST = (4.19, 3.11, 1.41, 2.70, 1.35)
PAPER_CIFAR = (5.45, 4.91, 4.20, 3.93, 3.69)
PAPER_TABLES = {"power": -0.50, "gas": 5.35, "hepmass": -19.56, "miniboone": -14.05, "bsds300": 144.22}

#: The paper's noise of fConv1, on each of its sets of images.
PAPER_NOISE = {"mnist": {"uniform": 3.41, "normal": 3.11}, "cifar10": {"uniform": 6.24, "normal": 4.91}}

#: The best networks, and how long they are trained.
RECORDS = (
    Experiment("mnist", "best", None, 20),
    Experiment("cifar10", "best", None, 50),
    Experiment("power", "best", None, 30),
    Experiment("mnist", "best_large", None, 100),
    Experiment("cifar10", "best_large", None, 100),
)

#: All of them, in the order in which they are run.
EXPERIMENTS = (
    *(Experiment("mnist", model, figure, 15) for model, figure in zip(MODELS, PAPER_MNIST, strict=True)),
    *(Experiment("cifar10", model, figure, 15) for model, figure in zip(MODELS, PAPER_CIFAR, strict=True)),
    *(Experiment(data, "fconv1", f, 10, noise) for data, both in PAPER_NOISE.items() for noise, f in both.items()),
    *(Experiment(name, "fmlp", figure, 10) for name, figure in PAPER_TABLES.items()),
    *RECORDS,
)
