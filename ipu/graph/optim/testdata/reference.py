"""Writes torch.json: ten steps of PyTorch's optimizers (1.13.1, float64) on a weight of 7 elements. Run: python3 reference.py

The gradient of step t (from 0) at element i is sin(1.7 i + 0.9 t) / (1 + t/4), the weight begins as cos(2.3 i).
"""
import json, math
import torch

def run(make):
    w = torch.tensor([math.cos(2.3 * i) for i in range(7)], dtype=torch.float64, requires_grad=True)
    o = make([w])
    for t in range(10):
        w.grad = torch.tensor([math.sin(1.7 * i + 0.9 * t) / (1 + t / 4) for i in range(7)], dtype=torch.float64)
        o.step()
    return w.detach().tolist()

T = torch.optim
cases = {
    "sgd": lambda p: T.SGD(p, lr=0.1),
    "sgd decay": lambda p: T.SGD(p, lr=0.1, weight_decay=0.05),
    "momentum": lambda p: T.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
    "nesterov": lambda p: T.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
    "adam": lambda p: T.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5),
    "adam l2": lambda p: T.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.05),
    "adamw": lambda p: T.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.05),
    "adagrad": lambda p: T.Adagrad(p, lr=0.02, eps=1e-5),
    "rmsprop": lambda p: T.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-5),
    "rmsprop momentum l2": lambda p: T.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-5, momentum=0.7, weight_decay=0.05),
    "centred rmsprop": lambda p: T.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-5, centered=True),
    "adadelta": lambda p: T.Adadelta(p, lr=0.5, rho=0.9, eps=1e-5),
}
with open("torch.json", "w") as f:
    json.dump({name: run(make) for name, make in cases.items()}, f, indent=0)
    f.write("\n")
