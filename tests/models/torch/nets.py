"""Modules of PyTorch, for tests. Functions without arguments, as `from_torch` takes them."""

import functools

import torch
from torch import nn

import labkit as lk


def lenet() -> nn.Module:
    """Two convolutions and two dense layers, as in LeNet-5, for images of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


@functools.cache
def network():
    """labkit's network, and its initial values."""
    objective = lk.Problem("digits", hidden=(16, 12), dtype="float64").objective()
    return objective, objective.start(0)


def same_as_network() -> nn.Module:
    """labkit's network with its initial values. PyTorch's weights are transposed."""
    objective, start = network()
    named = nn.Sequential()
    for name, inputs, outputs in (("dense1", 64, 16), ("dense2", 16, 12), ("output", 12, 10)):
        layer = nn.Linear(inputs, outputs, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(objective.layout.view(start, f"{name}.weight").T))
            layer.bias.zero_()
        named.add_module(name, layer)
        if name != "output":
            named.add_module(f"{name}-relu", nn.ReLU())
    return named


class Whole(nn.Module):
    """A module in one piece, which computes another one."""

    def __init__(self, make=lenet):
        super().__init__()
        self.net = make()

    def forward(self, x):
        return self.net(x)


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.output(torch.tanh(self.second(torch.tanh(self.first(x.flatten(1))))))


class Dropout(nn.Module):
    """Dropout as a function, which no module shows."""

    def __init__(self):
        super().__init__()
        self.hidden, self.output = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        hidden = torch.relu(self.hidden(x.flatten(1)))
        return self.output(nn.functional.dropout(hidden, 0.5, self.training))


class Transformer(nn.Module):
    """One encoder layer; rows of an image are its words. The positions are a constant buffer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(8, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.output = nn.Linear(16, 10)
        self.register_buffer("position", torch.linspace(0, 1, 8)[:, None].expand(8, 16).clone())

    def forward(self, x):
        return self.output(self.encoder(self.embedding(x.flatten(1, 2)) + self.position).mean(dim=1))


class Transposed(nn.Module):
    """The scores are not contiguous in memory."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 64) / 8)

    def forward(self, x):
        return (self.weight @ x.flatten(1).T).T


class Frozen(nn.Module):
    """One layer is not trained, and one not used; one is made when the first samples come."""

    def __init__(self):
        super().__init__()
        self.random, self.unused, self.output = nn.Linear(64, 32), nn.Linear(3, 3), nn.LazyLinear(10)
        self.random.requires_grad_(False)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        return self.output(self.norm(torch.tanh(self.random(x.flatten(1)))))


def words() -> nn.Module:
    """Ids of words as samples."""
    return nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(5 * 8, 3))


class BatchNorm(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv, self.norm, self.output = nn.Conv2d(1, 4, 3), norm(4), nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.output(torch.relu(self.norm(self.conv(x))).flatten(1))


class MaxNorm(nn.Module):
    """A forward pass limits the norms of a parameter, which are below the limit at first."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        with torch.no_grad():
            self.output.weight.renorm_(2, 0, 100.0)
        return self.output(x.flatten(1))


class RunningMean(nn.Module):
    """A forward pass replaces a buffer."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.flatten(1).mean(dim=0)
        return self.output(x.flatten(1) - self.mean)


class Float32(nn.Module):
    """It computes with float32 only."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        return self.output(x.flatten(1)) + torch.ones(10, 10) @ self.output.bias
