#!/usr/bin/env python3
"""Trains the digits model and writes digits.onnx beside this file, and the scans into scans/.

Needs Debian's python3-sklearn, python3-torch and python3-onnx; nobody needs to
run it to build or test the example. The data are the UCI "Optical Recognition
of Handwritten Digits" scans (E. Alpaydin, C. Kaynak; CC BY 4.0) that
scikit-learn carries: 1,797 images of 8x8 pixels with 17 grey levels. Every
fifth image is held out and never trained on.

usage: train.py [--seed N] [--classes 10|11] [--output FILE]
"""
import argparse
import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
args = argparse.ArgumentParser()
args.add_argument("--seed", type=int, default=1)
args.add_argument("--classes", type=int, default=10, help="11 adds a class 'not a digit', to try a change of shape")
args.add_argument("--output", default=os.path.join(here, "digits.onnx"))
args = args.parse_args()

torch.manual_seed(args.seed)
torch.set_num_threads(1)

data = load_digits()
images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(data.target)
held = torch.arange(len(labels)) % 5 == 4
train_x, train_y = images[~held], labels[~held]
test_x, test_y = images[held], labels[held]

logits = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, args.classes),
)
opt = torch.optim.Adam(logits.parameters(), lr=2e-3)
for epoch in range(30):
    logits.train()
    for i in torch.randperm(len(train_x)).split(64):
        x = train_x[i]
        # Shift by up to one pixel: the scans are not all centred alike.
        dy, dx = torch.randint(-1, 2, (2,)).tolist()
        x = torch.roll(x, (dy, dx), (2, 3)) if epoch < 20 else x
        opt.zero_grad()
        nn.functional.cross_entropy(logits(x), train_y[i]).backward()
        opt.step()

logits.eval()
with torch.no_grad():
    accuracy = (logits(test_x).argmax(1) == test_y).float().mean().item()
print(f"{len(train_x)} trained on, {len(test_x)} held out, accuracy {accuracy:.4f}")

model = nn.Sequential(logits, nn.Softmax(dim=1))
torch.onnx.export(model, test_x[:1], args.output, input_names=["image"], output_names=["probabilities"],
                  dynamic_axes={"image": {0: "batch"}, "probabilities": {0: "batch"}}, opset_version=13)

if args.classes == 10 and args.seed == 1:
    rows = np.column_stack([data.target, data.images.reshape(len(labels), 64).astype(int)])
    for name, which in ("heldout.csv", held), ("training.csv.gz", ~held):
        np.savetxt(os.path.join(here, "scans", name), rows[which.numpy()], fmt="%d", delimiter=",",
                   header="label, then 64 grey levels 0 to 16, row by row")
