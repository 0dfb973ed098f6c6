"""Models of a user, for tests."""

import itertools
from dataclasses import dataclass

import numpy as np

import labkit as lk


def softmax_loss(scores, y):
    """Mean cross-entropy, and its derivative with respect to the scores."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = (np.log(total).sum() - shifted[rows, y].sum()) / len(y)
    d = e / (total * len(y))
    d[rows, y] -= 1 / len(y)
    return float(loss), d


@dataclass(frozen=True)
class Linear(lk.NumpyModel):
    """A softmax regression."""

    scale: float = 0.1

    def shapes(self, data):
        return {"linear.weight": (data.features, data.outputs), "linear.bias": (data.outputs,)}

    def init(self, p, rng):
        p["linear.weight"][...] = self.scale * rng.normal(size=p["linear.weight"].shape)
        p["linear.bias"][...] = 0

    def scores(self, p, x):
        return x @ p["linear.weight"] + p["linear.bias"]

    def gradient(self, p, x, y, g):
        loss, d = softmax_loss(self.scores(p, x), y)
        g["linear.weight"][...] = x.T @ d
        g["linear.bias"][...] = d.sum(axis=0)
        return loss


@dataclass(frozen=True)
class MLP(lk.NumpyModel):
    """labkit's network of dense layers with ReLU, written anew: the same initial values, and the same operations."""

    hidden: tuple[int, ...] = (16, 12)
    seed: int = 0

    def shapes(self, data):
        widths = [data.features, *self.hidden, data.outputs]
        names = [*(f"dense{i + 1}" for i in range(len(self.hidden))), "output"]
        made = {}
        for name, (rows, columns) in zip(names, itertools.pairwise(widths)):
            made |= {f"{name}.weight": (rows, columns), f"{name}.bias": (columns,)}
        return made

    def init(self, p, rng):
        layers = [name for name in p if name.endswith("weight")]
        for number, name in enumerate(layers):
            w, draw = p[name], np.random.default_rng([self.seed, number])
            rows, columns = w.shape
            limit = np.sqrt(6 / (rows + columns))
            last = number == len(layers) - 1
            drawn = draw.uniform(-limit, limit, w.size) if last else draw.normal(0, np.sqrt(2 / rows), w.size)
            w[...] = drawn.reshape(w.shape)
            p[name.replace("weight", "bias")][...] = 0

    def forward(self, p, x):
        inputs = []
        layers = [name.removesuffix(".weight") for name in p if name.endswith("weight")]
        for layer in layers:
            inputs.append(x)
            x = x @ p[f"{layer}.weight"] + p[f"{layer}.bias"]
            x = x if layer == "output" else np.maximum(x, 0)
        return layers, inputs, x

    def scores(self, p, x):
        return self.forward(p, x)[2]

    def gradient(self, p, x, y, g):
        layers, inputs, scores = self.forward(p, x)
        shifted = scores - scores.max(axis=1, keepdims=True)
        e = np.exp(shifted)
        total = e.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(np.log(total).sum() - shifted[rows, y].sum()) / len(y)
        d = e / (total * len(y))
        d[rows, y] -= 1 / len(y)
        for layer, x_in in zip(reversed(layers), reversed(inputs)):
            g[f"{layer}.weight"][...] = x_in.T @ d
            g[f"{layer}.bias"][...] = d.sum(axis=0)
            if layer != layers[0]:
                d = (d @ p[f"{layer}.weight"].T) * (x_in > 0)
        return loss


class DenseStage(lk.NumpyStage):
    """A dense layer; all but the last ("output") have a ReLU behind it."""

    def forward(self, p, x):
        (layer,) = self.layers
        y = x @ p[f"{layer}.weight"] + p[f"{layer}.bias"]
        if layer != "output":
            y = np.maximum(y, 0)
        return y, (x, y)

    def backward(self, p, saved, dy, g, dx):
        (layer,) = self.layers
        x, y = saved
        if layer != "output":
            dy = dy * (y > 0)
        g[f"{layer}.weight"][...] = x.T @ dy
        g[f"{layer}.bias"][...] = dy.sum(axis=0)
        return dy @ p[f"{layer}.weight"].T if dx else None


@dataclass(frozen=True)
class StagedMLP(lk.NumpyModel):
    """The same network in stages."""

    hidden: tuple[int, ...] = (16, 12)
    seed: int = 0
    shapes, init = MLP.shapes, MLP.init

    def stages(self, data):
        names = [*(f"dense{i + 1}" for i in range(len(self.hidden))), "output"]
        return [DenseStage(layers=(name,), outputs=width) for name, width in zip(names, [*self.hidden, data.outputs])]


@dataclass(frozen=True)
class Dropout(Linear):
    """A softmax regression with dropout of its inputs."""

    stochastic = True
    rate: float = 0.5

    def gradient(self, p, x, y, g, rng):
        kept = (x * (rng.random(x.shape) >= self.rate) / (1 - self.rate)).astype(x.dtype)
        return super().gradient(p, kept, y, g)


@dataclass(frozen=True)
class CNN(lk.NumpyModel):
    """A convolution of 3 x 3 pixels, ReLU, and a dense layer."""

    channels: int = lk.option(8, low=1, help="channels of the convolution")
    image: tuple[int, int] = (8, 8)

    def shapes(self, data):
        h, w = self.image
        return {
            "conv.weight": (9, self.channels), "conv.bias": (self.channels,),
            "output.weight": ((h - 2) * (w - 2) * self.channels, data.outputs), "output.bias": (data.outputs,),
        }  # fmt: skip

    def init(self, p, rng):
        for name, values in p.items():
            values[...] = 0 if name.endswith("bias") else rng.normal(0, np.sqrt(2 / len(values)), values.shape)

    def windows(self, x):
        images = x.reshape(len(x), *self.image)
        found = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
        return found.reshape(-1, 9)

    def scores(self, p, x):
        hidden = np.maximum(self.windows(x) @ p["conv.weight"] + p["conv.bias"], 0)
        return hidden.reshape(len(x), -1) @ p["output.weight"] + p["output.bias"]

    def gradient(self, p, x, y, g):
        windows = self.windows(x)
        hidden = np.maximum(windows @ p["conv.weight"] + p["conv.bias"], 0)
        flat = hidden.reshape(len(x), -1)
        loss, d = softmax_loss(flat @ p["output.weight"] + p["output.bias"], y)
        g["output.weight"][...] = flat.T @ d
        g["output.bias"][...] = d.sum(axis=0)
        dh = (d @ p["output.weight"].T).reshape(hidden.shape) * (hidden > 0)
        g["conv.weight"][...] = windows.T @ dh
        g["conv.bias"][...] = dh.sum(axis=0)
        return loss
