# Writes a network of each kind as PyTorch exports it, with an input and PyTorch's answer and its weights: NAME.onnx, NAME.json.
# Run it with Debian's python3-torch: /usr/bin/python3 make.py
import json
import torch
from torch import nn

torch.manual_seed(1)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return torch.softmax(self.fc2(torch.relu(self.fc1(x))), -1)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(64, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.fc(torch.flatten(x, 1))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.q, self.k, self.v, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def heads(self, x):
        return x.reshape(2, 5, 2, 4).transpose(1, 2)

    def forward(self, x):
        n = self.norm1(x)
        a = torch.softmax(self.heads(self.q(n)) @ self.heads(self.k(n)).transpose(2, 3) * 0.5, -1) @ self.heads(self.v(n))
        x = x + self.o(a.transpose(1, 2).reshape(2, 5, 8))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


for name, net, shape in [("mlp", MLP(), (3, 8)), ("cnn", CNN(), (2, 1, 8, 8)), ("lstm", LSTM(), (6, 2, 3)), ("transformer", Transformer(), (2, 5, 8))]:
    net.eval()
    x = torch.randn(shape)
    with torch.no_grad():
        y = net(x)
    torch.onnx.export(net, x, name + ".onnx", input_names=["x"], output_names=["y"], opset_version=17, do_constant_folding=True)
    weights = {k: v.flatten().tolist() for k, v in net.state_dict().items()}
    with open(name + ".json", "w") as f:
        json.dump({"x": x.flatten().tolist(), "y": y.flatten().tolist(), "shape": list(shape), "weights": weights}, f)
        f.write("\n")
