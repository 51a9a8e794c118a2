"""Writes losses.json: losses of PyTorch (1.13.1, float64) and their gradients. Run: python3 losses.py

Score i (row-major) is 3 sin(1.7 i), label i the class (7 i + i // 3) mod classes, or the number cos(2.3 i), or for bce-with-logits
(1 + cos(2.3 i)) / 2; weight i is 0.5 + i/2. Where some labels are ignored, every third is. The gradient is that of the sum of what the loss gives.
"""
import json, math
import torch
import torch.nn.functional as F

cases = []

def case(loss, shape, reduction, axis=1, ignore=None, weights=0, threshold=1.0):
    n = math.prod(shape)
    x = torch.tensor([3 * math.sin(1.7 * i) for i in range(n)], dtype=torch.float64).reshape(shape).requires_grad_()
    w = torch.tensor([0.5 + i / 2 for i in range(weights)], dtype=torch.float64) if weights else None
    if loss in ("softmax-cross-entropy", "nll"):
        classes, places = shape[axis], n // shape[axis]
        y = torch.tensor([(7 * i + i // 3) % classes for i in range(places)])
        if ignore is not None:
            y[::3] = ignore
        rest = list(shape)
        del rest[axis]
        f = F.cross_entropy if loss == "softmax-cross-entropy" else F.nll_loss
        out = f(x.movedim(axis, 1) if len(shape) > 1 else x[None], y.reshape(rest) if rest else y, weight=w, reduction=reduction, ignore_index=-100 if ignore is None else ignore)
    else:
        y = torch.tensor([math.cos(2.3 * i) for i in range(n)], dtype=torch.float64).reshape(shape)
        if loss == "bce-with-logits":
            out = F.binary_cross_entropy_with_logits(x, (1 + y) / 2, pos_weight=w, reduction=reduction)
        elif loss == "mse":
            out = F.mse_loss(x, y, reduction=reduction)
        elif loss == "l1":
            out = F.l1_loss(x, y, reduction=reduction)
        elif loss == "smooth-l1":
            out = F.smooth_l1_loss(x, y, reduction=reduction, beta=threshold)
        else:
            out = F.huber_loss(x, y, reduction=reduction, delta=threshold)
    out.sum().backward()
    cases.append(dict(loss=loss, shape=shape, reduction=reduction, axis=axis, ignore=ignore, weights=weights, threshold=threshold,
                      value=[round(v, 12) for v in out.detach().reshape(-1).tolist()], gradient=[round(v, 12) for v in x.grad.reshape(-1).tolist()]))

for r in ("mean", "sum", "none"):
    for l in ("softmax-cross-entropy", "nll"):
        case(l, [4, 5], r)
        case(l, [4, 5], r, weights=5)
        case(l, [6, 3], r, ignore=-100)
        case(l, [2, 3, 2, 2], r, ignore=1, weights=3)
        case(l, [2, 3, 4], r, axis=-1)
    for l in ("mse", "l1", "smooth-l1", "huber", "bce-with-logits"):
        case(l, [3, 2, 2], r)
    case("smooth-l1", [7], r, threshold=2.5)
    case("huber", [7], r, threshold=2.5)
    case("bce-with-logits", [3, 4], r, weights=4)
with open("losses.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
