"""Compression of gradients: values of the option `codec` of a strategy."""

from .nn.codecs import QSGD, Float16, PowerSGD, SignSGD, TopK

__all__ = ["Float16", "PowerSGD", "QSGD", "SignSGD", "TopK"]
