#!/usr/bin/env python3
"""Trains the words model and writes words.onnx beside this file.

Needs Debian's python3-torch, python3-onnx and wamerican (the SCOWL word list,
freely usable); nobody needs to run it to build or test the example. The model
predicts the next letter of an English word. It is exported as one step: the
caller feeds the state that comes out back in.
"""
import os
import re

import torch
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(7)
torch.set_num_threads(1)

HIDDEN = 128
with open("/usr/share/dict/american-english", encoding="utf-8") as f:
    words = sorted({w.strip() for w in f if re.fullmatch("[a-z]{4,12}", w.strip())})
# Letters are 1 to 26; 0 begins and ends a word.
longest = max(map(len, words)) + 1
table = torch.zeros(len(words), longest + 1, dtype=torch.long)
mask = torch.zeros(len(words), longest, dtype=torch.bool)
for i, w in enumerate(words):
    table[i, 1:len(w) + 1] = torch.tensor([ord(c) - 96 for c in w])
    mask[i, :len(w) + 1] = True


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(27, 24)
        self.lstm = nn.LSTM(24, HIDDEN)
        self.head = nn.Linear(HIDDEN, 27)

    def forward(self, letter, hidden, cell):
        y, (hidden, cell) = self.lstm(self.letters(letter), (hidden, cell))
        return torch.softmax(self.head(y), -1), hidden, cell


model = Words()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
for epoch in range(12):
    total = count = 0
    for i in torch.randperm(len(words)).split(256):
        zero = torch.zeros(1, len(i), HIDDEN)
        y, _ = model.lstm(model.letters(table[i, :-1].T), (zero, zero))
        loss = nn.functional.cross_entropy(model.head(y)[mask[i].T], table[i, 1:].T[mask[i].T])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total, count = total + loss.item() * len(i), count + len(i)
    sched.step()
    print(f"epoch {epoch + 1}: {total / count:.4f} nats a letter over {len(words)} words", flush=True)

model.eval()
state = torch.zeros(1, 1, HIDDEN)
torch.onnx.export(model, (torch.zeros(1, 1, dtype=torch.int32), state, state), os.path.join(here, "words.onnx"),
                  input_names=["letter", "hidden", "cell"], output_names=["next", "hidden_out", "cell_out"], opset_version=13)
