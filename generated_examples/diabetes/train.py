#!/usr/bin/env python3
"""Trains the diabetes model and writes diabetes.onnx and heldout.csv beside this file.

Needs Debian's python3-sklearn, python3-torch and python3-onnx; nobody needs to
run it to build or test the example. The data are the 442 patients of Efron,
Hastie, Johnstone and Tibshirani, "Least Angle Regression" (2004), that
scikit-learn carries: age, sex, body mass index, blood pressure, six blood
serum measurements, and a measure of the disease's progression one year later.
Every fifth patient is held out and never trained on.
"""
import os

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(4)
torch.set_num_threads(1)

data = load_diabetes(scaled=False)
held = np.arange(len(data.target)) % 5 == 4
age = torch.tensor(data.data[:, 0], dtype=torch.int32).unsqueeze(1)
sex = torch.tensor(data.data[:, 1], dtype=torch.int64) - 1  # 1, 2 in the data set
labs = torch.tensor(data.data[:, 2:], dtype=torch.float32)
target = torch.tensor(data.target, dtype=torch.float32).unsqueeze(1)
train, test = torch.tensor(~held), torch.tensor(held)


class Progression(nn.Module):
    """Two integer inputs, one of them a category with an embedding, and eight measurements."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", labs[train].mean(0))
        self.register_buffer("std", labs[train].std(0))
        self.sex = nn.Embedding(2, 3)
        self.net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, age, sex, labs):
        x = torch.cat([age.float() / 50 - 1, self.sex(sex), (labs - self.mean) / self.std], 1)
        return self.net(x) * 77 + 152


model = Progression()
opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=2e-2)
rows = torch.arange(len(target))[train]
for epoch in range(150):
    for i in rows[torch.randperm(len(rows))].split(32):
        opt.zero_grad()
        nn.functional.smooth_l1_loss(model(age[i], sex[i], labs[i]) / 77, target[i] / 77).backward()
        opt.step()
model.eval()
with torch.no_grad():
    error = (model(age[test], sex[test], labs[test]) - target[test]).abs().mean().item()
    naive = (target[train].median() - target[test]).abs().mean().item()
print(f"{len(rows)} trained on, {int(test.sum())} held out, mean absolute error {error:.2f} (always the median: {naive:.2f})")

torch.onnx.export(model, (age[:1], sex[:1], labs[:1]), os.path.join(here, "diabetes.onnx"),
                  input_names=["age", "sex", "measurements"], output_names=["progression"], opset_version=13,
                  dynamic_axes={n: {0: "patients"} for n in ["age", "sex", "measurements", "progression"]})
np.savetxt(os.path.join(here, "heldout.csv"), np.column_stack([data.data[held], data.target[held]]), fmt="%g", delimiter=",",
           header="age,sex,bmi,bp,tc,ldl,hdl,tch,ltg,glu,progression")
