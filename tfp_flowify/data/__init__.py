"""Data sets by name and from files, in memory, and batches of them."""

from tfp_flowify.data.dataset import Data, batches
from tfp_flowify.data.images import cifar10, digits, fashion_mnist, image_folder, mnist
from tfp_flowify.data.load import NAMES, load
from tfp_flowify.data.tabular import bsds300, gas, hepmass, miniboone, power

__all__ = [
    "NAMES",
    "Data",
    "batches",
    "bsds300",
    "cifar10",
    "digits",
    "fashion_mnist",
    "gas",
    "hepmass",
    "image_folder",
    "load",
    "miniboone",
    "mnist",
    "power",
]
