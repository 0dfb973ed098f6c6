"""Handwritten digits: 1,797 pictures of 8 x 8 pixels, shipped with labkit.

The pictures are identical to the pictures of `sklearn.datasets.load_digits` (pixels 0 to 16). Source and licence are in
`files/digits.txt`: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar

import numpy as np

from .dataset import Dataset, build, hold_out
from .synthetic import Recipe

ABOUT = (
    "Handwritten digits, 8 x 8 pixels: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, "
    "UCI Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0."
)


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the raw pictures: images (1797, 64) uint8 from 0 to 16, and labels (1797,) uint8 from 0 to 9."""
    path = resources.files("labkit.data").joinpath("files", "digits.npz")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return stored["images"], stored["labels"]


@dataclass(frozen=True)
class Digits(Recipe):
    """Handwritten digits. The recipe has no options."""

    name: ClassVar[str] = "digits"

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """Make the data set. x: (n, 64) pixels. y: (n,) labels 0 to 9."""
        train, test = hold_out(*read_digits(), test_fraction, seed)
        return build(self.name, train, test, 10, standardize=standardize, dtype=dtype, sample_shape=(8, 8), about=ABOUT)
