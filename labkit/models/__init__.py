"""Models of a user: NumPy code with named arrays, which every data-parallel strategy trains.

`numpy_model`: what a user writes. `model_objective`: the `nn.Objective` made from it, for roles, which know one flat vector.
`torch_model`: modules of PyTorch with the same methods. `check`: the checks of a user's code.
"""

from .check import check_model as check_model
from .numpy_model import DataShape as DataShape
from .numpy_model import NumpyModel as NumpyModel
from .numpy_model import NumpyStage as NumpyStage
from .torch_model import from_torch as from_torch
