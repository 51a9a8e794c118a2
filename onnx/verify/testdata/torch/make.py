#!/usr/bin/env python3
"""Makes the models beside this file, with PyTorch's own outputs as reference.

They are small forms of networks that people export, for what exporters make of
them: shape arithmetic, masks, slices that are assigned to, loops and branches
of scripted code, packed sequences. Debian's python3-torch 1.13 and python3-onnx
1.12 made those that are committed:

    python3 make.py
"""

import os
import shutil

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import numpy_helper

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)


class Tagger(nn.Module):
    """A bidirectional LSTM over tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.out = nn.Linear(10, 4)

    def forward(self, tokens):
        y, _ = self.lstm(self.embed(tokens))
        scores = self.out(y)
        return scores.argmax(-1), scores.log_softmax(-1)


class Packed(nn.Module):
    """An LSTM over sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, bidirectional=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
        y, (h, c) = self.lstm(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y)
        return y, h, c


class Attend(nn.Module):
    """A GRU whose outputs attend to each other."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 6, 2, bidirectional=True)
        self.proj = nn.Linear(12, 12)

    def forward(self, x, state):
        y, state = self.gru(x, state)
        w = torch.bmm(self.proj(y).transpose(0, 1), y.permute(1, 2, 0)).softmax(2)
        return torch.bmm(w, y.transpose(0, 1)), state


class Causal(nn.Module):
    """One layer of a language model, with a causal mask cut to length."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.qkv, self.norm, self.out = nn.Linear(16, 48), nn.LayerNorm(16), nn.Linear(16, 50)
        self.register_buffer("mask", torch.tril(torch.ones(20, 20)).view(1, 1, 20, 20))

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.token(tokens) + self.place(torch.arange(t))[None]
        q, k, v = (z.view(b, t, 4, 4).transpose(1, 2) for z in self.qkv(self.norm(x)).split(16, -1))
        a = (q @ k.transpose(-2, -1)) / 2.0
        a = a.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.out(x + (a @ v).transpose(1, 2).reshape(b, t, 16))


class Sentence(nn.Module):
    """Mean pooling of tokens that are not masked, to unit length."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)

    def forward(self, tokens, mask):
        x = self.embed(tokens)
        q = x.view(x.shape[0], x.shape[1], 2, 8).transpose(1, 2)
        a = q @ q.transpose(-1, -2) / 8**0.5 + (1.0 - mask[:, None, None, :].float()) * -10000.0
        y = (a.softmax(-1) @ q).transpose(1, 2).contiguous().view(*x.shape)
        n = mask.unsqueeze(-1).expand(y.size()).float()
        return F.normalize((y * n).sum(1) / n.sum(1).clamp(min=1e-9), p=2, dim=1)


class Cache(nn.Module):
    """Attention to keys and values of earlier steps."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, keys, values):
        q, k, v = self.qkv(x).chunk(3, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        return (q @ keys.transpose(1, 2)).softmax(-1) @ values, keys, values


class Experts(nn.Module):
    """A mixture of the two best experts of three."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.weight = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        best, index = p.topk(2)
        mask = torch.zeros_like(p).scatter(1, index, best)
        return torch.einsum("bi,eio,be->bo", x, self.weight, mask)


class Shifted(nn.Module):
    """Attention in shifted windows of an image, with a bias by distance."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.bias = nn.Parameter(torch.randn(49, 2))
        place = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4))).flatten(1)
        distance = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + 3
        self.register_buffer("index", distance[..., 0] * 7 + distance[..., 1])

    def forward(self, x):
        b, h, w, c = x.shape
        x = torch.roll(x, (-2, -2), (1, 2))
        x = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(x).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(-2, -1) + self.bias[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)[None]
        y = (a.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, (2, 2), (1, 2))


class Pixels(nn.Module):
    """What goes before a vision model: bytes to resized, normalised planes."""

    def forward(self, x):
        x = (x.float() / 255).permute(0, 3, 1, 2)
        mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.2, 0.3])
        x = (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
        return F.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)[:, [2, 1, 0]].flip(3)


class Assigned(nn.Module):
    """Slices that are assigned to."""

    def forward(self, x):
        x = x.clone()
        x[1:3, ::2] = 0
        x[0] = x[3]
        x[:, 4] = torch.arange(4.0)
        return x.index_put((torch.tensor([0, 2]), torch.tensor([1, 3])), torch.tensor([7.0, 8.0]))


class Steps(nn.Module):
    """Scripted code: a branch, a loop of known length and one of unknown."""

    def forward(self, x):
        if bool(x.sum() > 0):
            y = x * 2
        else:
            y = x - 1
        for i in range(3):
            y = y + x[i]
        while bool(y.max() < 5.0):
            y = y * 1.5 + 1
        return y


class State(nn.Module):
    """Scripted code: a state that every step changes."""

    def forward(self, x):
        state = torch.zeros(x.size(1), 2)
        for i in range(x.size(0)):
            state = torch.tanh(state + x[i])
        return state


def save(name, module, inputs, opset, free=None):
    """Exports a model and writes its inputs and outputs."""
    folder = os.path.join(here, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "test_data_set_0"))
    module.eval()
    path = os.path.join(folder, "model.onnx")
    names = [f"x{i}" for i in range(len(inputs))]
    with torch.no_grad():
        outputs = module(*[x.clone() for x in inputs])
    torch.onnx.export(module, tuple(inputs), path, opset_version=opset, input_names=names, dynamic_axes=free)
    model = onnx.load(path)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    for kind, tensors, infos in ("input", inputs, model.graph.input), ("output", outputs, model.graph.output):
        for i, (tensor, info) in enumerate(zip(tensors, infos)):
            data = numpy_helper.from_array(np.ascontiguousarray(tensor.detach().numpy()), info.name)
            with open(os.path.join(folder, "test_data_set_0", f"{kind}_{i}.pb"), "wb") as f:
                f.write(data.SerializeToString())


rand, tokens = torch.randn, torch.randint
free = {0: "batch", 1: "length"}
save("tagger", Tagger(), [tokens(0, 20, (2, 6))], 17, {"x0": free})
save("packed", Packed(), [rand(4, 3, 5), torch.tensor([4, 3, 1])], 13)
save("attend", Attend(), [rand(5, 2, 4), rand(4, 2, 6)], 14)
save("causal", Causal(), [tokens(0, 50, (2, 6))], 13, {"x0": free})
save("sentence", Sentence(), [tokens(0, 30, (2, 7)), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])], 11, {"x0": free, "x1": free})
save("cache", Cache(), [rand(1, 1, 8), rand(1, 5, 8), rand(1, 5, 8)], 9, {"x1": {1: "past"}, "x2": {1: "past"}})
save("experts", Experts(), [rand(5, 4)], 16)
save("shifted", Shifted(), [rand(1, 8, 8, 8)], 11)
save("pixels", Pixels(), [tokens(0, 255, (1, 12, 10, 3)).to(torch.uint8)], 13)
save("assigned", Assigned(), [rand(4, 5)], 11)
save("steps", torch.jit.script(Steps()), [rand(4, 3)], 13)
save("state", torch.jit.script(State()), [rand(4, 3, 2)], 16)
