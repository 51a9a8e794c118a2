"""Writes twelve networks as ONNX files and networks.json, networks.f32: ten steps of each with every optimizer (PyTorch 1.13.1). Run: python3 networks.py

Networks begin with float32 weights of a fixed seed and are trained in float64 on one batch. networks.json names their losses, their trained
weights in order, and the optimizers; networks.f32 has for each network: its inputs and labels, then for each optimizer ten losses and the weights after ten steps, all
as little-endian float32. What PyTorch does not have, or has with another formula, is written out in optimizers below.
"""
import json, math
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)

class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(1)

class Last(nn.Module):
    """The last step of a recurrent layer of (steps, batch, features), in a linear layer."""
    def __init__(self, layer, out):
        super().__init__()
        self.layer, self.out = layer, out
    def forward(self, x):
        y, _ = self.layer(x)
        return self.out(y[-1])

class Block(nn.Module):
    """A transformer's block: two heads of attention and two linear layers, normalised before each."""
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down, self.out = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.Linear(d, 3)
    def forward(self, x):
        n, s, d = 3, 4, 4
        q, k, v = self.qkv(self.n1(x)).reshape(n, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // self.heads), -1)
        x = x + self.proj((p @ v).transpose(1, 2).reshape(n, s, d))
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return self.out(x.mean(1))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)
    def forward(self, x):
        return self.out(self.table(x).mean(1))

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.out = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Linear(4, 2)
    def forward(self, x):
        x = self.a(x)
        x = x + F.relu(self.norm(self.b(x)))
        return self.out(x.mean((2, 3)))

class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 3)
    def forward(self, x):
        return self.out(F.silu(self.a(x)) * torch.sigmoid(self.b(x)))

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.up = nn.Linear(4, 6), nn.Linear(6, 4), nn.ConvTranspose1d(2, 2, 3, stride=2)
    def forward(self, x):
        x = F.elu(self.b(F.softplus(self.a(x))) * torch.tanh(x))
        return self.up(x.reshape(3, 2, 2))

norm = nn.BatchNorm2d(3)
with torch.no_grad():
    norm.running_mean.copy_(torch.randn(3) / 4)
    norm.running_var.copy_(torch.rand(3) + 0.5)
networks = {
    "mlp": (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (4, 6), "softmax-cross-entropy"),
    "maxpool": (nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), Flat(), nn.Linear(27, 3)), (3, 1, 6, 6), "softmax-cross-entropy"),
    "batchnorm": (nn.Sequential(nn.Conv2d(2, 3, 3), norm, nn.LeakyReLU(0.1), nn.AvgPool2d(2), Flat(), nn.Linear(12, 2)), (3, 2, 6, 6), "mse"),
    "depthwise": (nn.Sequential(nn.Conv2d(3, 3, 3, stride=2, padding=1, groups=3), nn.Hardswish(), nn.Conv2d(3, 5, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), Flat(), nn.Linear(5, 3)), (3, 3, 6, 6), "softmax-cross-entropy"),
    "lstm": (Last(nn.LSTM(3, 4), nn.Linear(4, 3)), (5, 3, 3), "softmax-cross-entropy"),
    "gru": (Last(nn.GRU(3, 4), nn.Linear(4, 2)), (5, 3, 3), "mse"),
    "rnn": (Last(nn.RNN(3, 4, bidirectional=True), nn.Linear(8, 2)), (4, 3, 3), "smooth-l1"),
    "transformer": (Block(4, 2), (3, 4, 4), "softmax-cross-entropy"),
    "embedding": (Words(), (4, 5), "softmax-cross-entropy"),
    "residual": (Residual(), (3, 2, 4, 4), "huber"),
    "gated": (Gated(), (4, 5), "bce-with-logits"),
    "mixed": (Mixed(), (3, 4), "mse"),
}
losses = {"softmax-cross-entropy": F.cross_entropy, "mse": F.mse_loss, "smooth-l1": F.smooth_l1_loss, "huber": F.huber_loss, "bce-with-logits": F.binary_cross_entropy_with_logits}

class Formula(torch.optim.Optimizer):
    """An optimizer by a function of weight, gradient, state and the number of the step, which returns what the weight loses."""
    def __init__(self, params, step):
        super().__init__(params, {})
        self.formula, self.t = step, 0
    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.param_groups[0]["params"]:
            p.sub_(self.formula(p, p.grad, self.state[p], self.t))

def moments(s, g, b1, b2):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    return s["m"], s["v"]

def adamax(w, g, s, t, lr=0.01, b1=0.8, b2=0.95, eps=1e-3):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = torch.maximum(b2 * s.get("v", torch.zeros_like(g)), g.abs())
    return lr * (s["m"] / (1 - b1**t)) / (s["v"] / (1 - b2**t) + eps)  # PopART corrects v too

def lamb(w, g, s, t, lr=0.01, b1=0.8, b2=0.95, eps=1e-3, wd=0.05, most=1.5):
    m, v = moments(s, g, b1, b2)
    x = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps) + wd * w
    norm = min(w.norm(), torch.tensor(most, dtype=w.dtype))
    return lr * x * (norm / x.norm() if norm > 0 and x.norm() > 0 else 1)

def rmsprop_tf(w, g, s, t, lr=0.01, a=0.9, eps=1e-3, mom=0.7):
    s["v"] = a * s.get("v", 0) + (1 - a) * g * g
    s["b"] = mom * s.get("b", 0) + g / (s["v"] + eps).sqrt()
    return lr * s["b"]

def dampened(params):
    params = list(params)
    o = torch.optim.SGD(params, lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.05)
    for p in params:
        o.state[p]["momentum_buffer"] = torch.zeros_like(p)  # PyTorch leaves the first gradient undampened, PopART does not
    return o

T = torch.optim
optimizers = {
    "sgd": lambda p: T.SGD(p, lr=0.05),
    "sgd decay": lambda p: T.SGD(p, lr=0.05, weight_decay=0.05),
    "momentum": lambda p: T.SGD(p, lr=0.05, momentum=0.8),
    "dampened": dampened,
    "nesterov": lambda p: T.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.05, nesterov=True),
    "adam": lambda p: T.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-3),
    "adam l2": lambda p: T.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05),
    "adamw": lambda p: T.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05),
    "adamax": lambda p: Formula(p, adamax),
    "lamb": lambda p: Formula(p, lamb),
    "adagrad": lambda p: T.Adagrad(p, lr=0.01, eps=1e-3),
    "rmsprop": lambda p: T.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3),
    "rmsprop centred": lambda p: T.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3, centered=True, momentum=0.7, weight_decay=0.05),
    "rmsprop tf": lambda p: Formula(p, rmsprop_tf),
    "adadelta": lambda p: T.Adadelta(p, lr=0.5, rho=0.9, eps=1e-4),
}

def labels(loss, shape):
    if loss == "softmax-cross-entropy":
        return torch.randint(shape[1], shape[:1])
    if loss == "bce-with-logits":
        return (torch.rand(shape) < 0.5).float()
    return torch.randn(shape)

for net, _, _ in networks.values():
    for m in net.modules():
        if isinstance(m, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)):  # ones and zeros would be one initialiser of the file
            nn.init.normal_(m.weight, 1, 0.2)
            nn.init.normal_(m.bias, 0, 0.2)

index, data = {"optimizers": list(optimizers), "networks": []}, []
for name, (net, shape, loss) in networks.items():
    x = torch.randint(9, shape) if name == "embedding" else torch.randn(shape)
    net.eval()
    y = labels(loss, net(x).shape)
    torch.onnx.export(net, x, name + ".onnx", training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, opset_version=17,
                      input_names=["x"], output_names=["scores"], keep_initializers_as_inputs=False)
    weights = [n for n, _ in net.named_parameters()]
    begin = {n: t.clone() for n, t in net.state_dict().items()}
    net.double()
    wide = x if name == "embedding" else x.double()
    data += x.flatten().tolist() + y.flatten().tolist()
    for make in optimizers.values():
        net.load_state_dict(begin)
        o = make(net.parameters())
        for _ in range(10):
            o.zero_grad()
            l = losses[loss](net(wide), y if y.dtype == torch.long else y.double())
            l.backward()
            o.step()
            data.append(l.item())
        for p in net.parameters():
            data += p.detach().flatten().tolist()
    index["networks"].append({"name": name, "loss": loss, "weights": weights})
with open("networks.json", "w") as f:
    json.dump(index, f, indent=1)
    f.write("\n")
with open("networks.f32", "wb") as f:
    f.write(torch.tensor(data, dtype=torch.float32).numpy().astype("<f4").tobytes())
