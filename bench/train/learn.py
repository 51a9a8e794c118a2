"""Trains the networks of networks.go with PyTorch. Commands are lines of JSON on the standard input, one answer each on the output:

{"open": NAME, "weights": N, "data": N, "labels": N}   and then, in a file of that order whose path is "file", float32 and int32: a network
{"threads": N}       how many threads it takes from now on
{"steps": N}         trains N steps; the answer has their losses and times in ns ("clock": "processor" for processor time)
{"memory": true}     the most memory that the process had, and what it had before the first network, in bytes
"""
import json, sys, time
import numpy as np
import torch
from torch import nn


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(28, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[1][0][0])


class Transformer(nn.Module):
    def __init__(self, layers, d):
        super().__init__()
        self.embed, self.at = nn.Linear(28, d), nn.Parameter(torch.zeros(28, d))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.0, batch_first=True) for _ in range(layers))
        self.out = nn.Linear(d, 10)

    def forward(self, x):
        x = self.embed(x) + self.at
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


def conv(a, b):
    return nn.Conv2d(a, b, 3, padding=1)


def networks(name):
    """Returns a network, the shape of its input, and its parameters in the order of the ONNX model's weights, each with how it stands there."""
    as_is, turned = (lambda w, p: w), (lambda w, p: w.reshape(p.shape[1], p.shape[0]).T)
    if name == "digits":
        n = nn.Sequential(conv(1, 16), nn.ReLU(), conv(16, 32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
        shape = (-1, 1, 8, 8)
    elif name == "cnn":
        n = nn.Sequential(conv(1, 32), nn.ReLU(), nn.MaxPool2d(2), conv(32, 64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))
        shape = (-1, 1, 28, 28)
    elif name == "mlp":
        n = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
        shape = (-1, 784)
    elif name == "lstm":
        n, shape = LSTM(), (28, -1, 28)
        def gates(w, p):  # ONNX has i o f c, torch i f c o
            i, o, f, c = w.reshape(4, 128, -1)
            return np.concatenate([i, f, c, o])
        l = n.lstm
        return n, shape, [(l.weight_ih_l0, gates), (l.weight_hh_l0, gates), (l.bias_ih_l0, gates), (l.bias_hh_l0, gates), (n.out.weight, as_is), (n.out.bias, as_is)]
    else:
        n, shape = Transformer(2, 128), (-1, 28, 28)
        order = [(n.embed.weight, turned), (n.embed.bias, as_is), (n.at, as_is)]
        for l in n.layers:
            a = l.self_attn
            order += [(a.in_proj_weight, turned), (a.in_proj_bias, as_is), (a.out_proj.weight, turned), (a.out_proj.bias, as_is)]
            order += [(l.norm1.weight, as_is), (l.norm1.bias, as_is), (l.linear1.weight, turned), (l.linear1.bias, as_is)]
            order += [(l.linear2.weight, turned), (l.linear2.bias, as_is), (l.norm2.weight, as_is), (l.norm2.bias, as_is)]
        return n, shape, order + [(n.out.weight, as_is), (n.out.bias, as_is)]
    return n, shape, [(p, as_is) for p in n.parameters()]


class Network:
    def __init__(self, c):
        self.net, shape, order = networks(c["open"])
        words = np.fromfile(c["file"], dtype="<u4")
        values, rest = words[: c["weights"]].view("<f4"), words[c["weights"] :]
        with torch.no_grad():
            for p, form in order:
                w = np.ascontiguousarray(form(values[: p.numel()], p)).reshape(tuple(p.shape))
                p.copy_(torch.from_numpy(w.copy()))
                values = values[p.numel() :]
        if len(values):
            raise ValueError("%s: %d weights too many" % (c["open"], len(values)))
        self.x = torch.from_numpy(rest[: c["data"]].view("<f4").copy()).reshape(shape)
        self.labels = torch.from_numpy(rest[c["data"] :].astype(np.int64))
        self.net.train()
        self.loss = nn.CrossEntropyLoss()
        self.adam = torch.optim.Adam(self.net.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8)

    def step(self):
        self.adam.zero_grad(set_to_none=True)
        loss = self.loss(self.net(self.x), self.labels)
        loss.backward()
        self.adam.step()
        return loss.item()


def memory(field):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    net, before = None, memory("VmRSS")
    for line in sys.stdin:
        c = json.loads(line)
        answer = {"version": torch.__version__}
        if "open" in c:
            net = Network(c)
        elif "threads" in c:
            torch.set_num_threads(c["threads"])
        elif "steps" in c:
            clock = time.process_time_ns if c.get("clock") == "processor" else time.perf_counter_ns
            answer["losses"], answer["times"] = [], []
            for _ in range(c["steps"]):
                begin = clock()
                loss = net.step()
                answer["times"].append(clock() - begin)
                answer["losses"].append(loss)
        elif "memory" in c:
            answer["most"], answer["before"] = memory("VmHWM"), before
        print(json.dumps(answer), flush=True)


main()
