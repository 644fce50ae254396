from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = next(
    line.split('"')[1] for line in (here / "tfp_flowify/__init__.py").read_text().splitlines() if "__version__" in line
)

setup(
    name="tfp-flowify",
    version=version,
    description="Neural networks as normalizing flows, on TensorFlow Probability and Keras 3",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["tfp_flowify", "tfp_flowify.*"]),
    package_data={"tfp_flowify.data": ["digits.npz"]},
    python_requires=">=3.10",
    install_requires=[
        "tensorflow>=2.19,<2.22",
        # One private module of it is used (see bijectors/base.py), so it is pinned to the series that was tested.
        "tensorflow-probability>=0.25,<0.26",
        "tf-keras>=2.19,<2.22",
        "keras>=3.10,<4",
        "numpy>=1.26",
        "matplotlib>=3.8",
        "tensorflow-datasets>=4.9.7",
    ],
    entry_points={"console_scripts": ["tfp-flowify = tfp_flowify.commands:main"]},
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.19,<2.22"],
        "test": ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "ruff>=0.6"],
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
