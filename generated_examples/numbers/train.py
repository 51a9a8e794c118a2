#!/usr/bin/env python3
"""Trains the numbers model and writes numbers.onnx and lines.txt beside this file.

Needs Debian's python3-sklearn, python3-torch and python3-onnx; nobody needs to run
it to build or test the example. The digits are the UCI "Optical Recognition of
Handwritten Digits" scans (E. Alpaydin, C. Kaynak; CC BY 4.0) that scikit-learn
carries: 1,797 images of 8x8 pixels with 17 grey levels. A line is one to eight of
them side by side, without their empty columns, with gaps of one to three columns.
Lines of lines.txt are made of every fifth scan, which is never trained on.

The network is fully convolutional: for every second column it tells which digit is
there, or none. It is trained by connectionist temporal classification, so nobody has
to say where a digit stands. What lies outside of the mask is zero after each layer,
as it is beyond the edge of a narrower picture: so a line may be padded.
"""
import os
import random

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(3)
random.seed(3)
np.random.seed(3)
torch.set_num_threads(1)

data = load_digits()
held = np.arange(len(data.target)) % 5 == 4


def trimmed(image):
    """The scan without empty columns on either side."""
    ink = np.nonzero(image.sum(0))[0]
    return image[:, ink[0]:ink[-1] + 1]


def scans(which):
    return [(trimmed(i), int(t)) for i, t, w in zip(data.images, data.target, which) if w]


train_scans, held_scans = scans(~held), scans(held)


def varied(image):
    """The scan as somebody else might have written it: wider or narrower, higher or lower, fainter."""
    width = max(3, image.shape[1] + random.randint(-1, 2))
    image = torch.tensor(image)[None, None]
    image = nn.functional.interpolate(image, (8, width), mode="bilinear", align_corners=False)[0, 0].numpy()
    return np.roll(image, random.choice([-1, 0, 0, 1]), 0) * random.uniform(0.7, 1) + np.random.rand(8, width) * random.uniform(0, 2)


def line(scans, n, vary=False):
    """A line of n digits: its picture, 8 rows high, and the digits."""
    parts, digits = [np.zeros((8, random.randint(1, 2)))], []
    for _ in range(n):
        image, digit = random.choice(scans)
        parts += [varied(image) if vary else image, np.zeros((8, random.randint(1, 3)))]
        digits.append(digit)
    return np.concatenate(parts, 1), digits


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 24, 3, padding=1)
        self.b = nn.Conv2d(24, 32, 3, padding=1)
        self.c = nn.Conv2d(32, 64, (4, 5), padding=(0, 2))
        self.d = nn.Conv2d(64, 64, (1, 3), padding=(0, 1))
        self.e = nn.Conv2d(64, 11, 1)

    def forward(self, image, mask):
        x = torch.relu(self.a(image * mask)) * mask
        x = torch.relu(self.b(x)) * mask
        x = nn.functional.max_pool2d(x, 2)
        half = mask[:, :, :, 1::2]
        x = x * half
        x = torch.relu(self.c(x)) * half
        x = torch.relu(self.d(x)) * half
        return self.e(x).squeeze(2).transpose(1, 2)  # [batch, columns, classes]; class 10 is none


def batch(scans, size):
    lines = [line(scans, random.randint(1, 8), random.random() < 0.7) for _ in range(size)]
    width = max(p.shape[1] for p, _ in lines)
    image, mask = torch.zeros(size, 1, 8, width), torch.zeros(size, 1, 1, width)
    for i, (p, _) in enumerate(lines):
        image[i, 0, :, :p.shape[1]] = torch.tensor(p / 16)
        mask[i, 0, 0, :p.shape[1]] = 1
    columns = torch.tensor([p.shape[1] // 2 for p, _ in lines])
    digits = [torch.tensor(d) for _, d in lines]
    return image, mask, columns, digits


def read(scores):
    best, out, last = scores.argmax(-1).tolist(), [], 10
    for b in best:
        if b != 10 and b != last:
            out.append(b)
        last = b
    return out


model = Reader()
steps = 3000
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=steps)
ctc = nn.CTCLoss(blank=10, zero_infinity=True)
for step in range(steps):
    image, mask, columns, digits = batch(train_scans, 32)
    opt.zero_grad()
    scores = model(image, mask).log_softmax(-1).transpose(0, 1)
    loss = ctc(scores, torch.cat(digits), columns, torch.tensor([len(d) for d in digits]))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1)
    opt.step()
    schedule.step()
    if step % 250 == 249:
        print(step + 1, f"{loss.item():.4f}", flush=True)

model.eval()
lines = [line(held_scans, 1 + i % 8) for i in range(96)]
right = 0
with torch.no_grad():
    for p, digits in lines:
        image = torch.tensor(p / 16, dtype=torch.float32)[None, None]
        right += read(model(image, torch.ones(1, 1, 1, p.shape[1]))[0]) == digits
print(f"{right} of {len(lines)} lines of scans that were held out are read without a mistake")

with open(os.path.join(here, "lines.txt"), "w", encoding="ascii") as f:
    f.write("# Lines of handwritten digits: the number, then eight rows, a letter for each pixel: a is white, q black.\n")
    for p, digits in lines:
        f.write("".join(map(str, digits)) + "\n")
        for row in p.astype(int):
            f.write("".join(chr(97 + v) for v in row) + "\n")

torch.onnx.export(model, (torch.zeros(1, 1, 8, 16), torch.ones(1, 1, 1, 16)),
                  os.path.join(here, "numbers.onnx"), input_names=["image", "mask"], output_names=["scores"],
                  dynamic_axes={"image": {0: "batch", 3: "width"}, "mask": {0: "batch", 3: "width"}, "scores": {0: "batch", 1: "columns"}}, opset_version=13)
