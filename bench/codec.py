#!/usr/bin/env python3
"""DeMo's codec beside the same in PyTorch, turn by turn: chunks and tiles of 64 at a rate of 1/32.

Run:  VENV/bin/python bench/codec.py --sotto build/bench_codec [--threads 1] [--parameters 13.8e6] [--turns 7]
                                [--device cuda]
Encode: transform, take the largest coefficients of each tile, and take them out of the momentum. Decode: average two
senders' and transform back. A line a shape and direction: million parameters a second of both (median), and PyTorch's
time over ours, turn by turn (median, lowest, highest). On a GPU both are timed by its clock.
"""
import argparse
import math
import statistics
import subprocess
import time

import torch

from step import program

SIDE, RATE, SENDERS = 64, 32, 2


def basis():
    t, f = torch.arange(SIDE).double(), torch.arange(SIDE).double()[:, None]
    b = torch.cos(math.pi * (2 * t + 1) * f / (2 * SIDE)) * math.sqrt(2 / SIDE)
    b[0] /= math.sqrt(2)
    return b.float()


class Chunks:
    def __init__(self, m):
        self.m, self.b = m, basis()

    def forward(self, x):
        return x.view(-1, SIDE) @ self.b.T

    def back(self, c):
        return (c @ self.b).view(-1)

    def encode(self):
        c = self.forward(self.m)
        index = c.abs().topk(c.shape[1] // RATE, dim=1, sorted=False).indices
        value = c.gather(1, index)
        self.m.sub_(self.back(torch.zeros_like(c).scatter_(1, index, value)).view_as(self.m))
        return index, value, c.shape

    def decode(self, sent):
        index, value = (torch.cat([s[i] for s in sent], 1) for i in range(2))
        c = torch.zeros(sent[0][2]).scatter_reduce_(1, index, value, "mean", include_self=False)
        return self.back(c)


class Tiles(Chunks):
    def __init__(self, m):
        super().__init__(m.view(-1, 384))

    def forward(self, x):
        x = x.view(-1, SIDE, 384 // SIDE, SIDE).permute(0, 2, 1, 3)
        return (self.b @ x @ self.b.T).reshape(-1, SIDE * SIDE)

    def back(self, c):
        x = self.b.T @ c.view(-1, 384 // SIDE, SIDE, SIDE) @ self.b
        return x.permute(0, 2, 1, 3).reshape(-1, 384)


def now(device):
    if device == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(a, b):
    if isinstance(a, float):
        return b - a
    b.synchronize()
    return a.elapsed_time(b) / 1e3


def measure(lab, other):
    device = lab.m.device.type
    begin = now(device)
    sent = lab.encode()
    middle = now(device)
    lab.decode([sent, other])
    end = now(device)
    return between(begin, middle), between(middle, end)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="bench_codec")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--parameters", type=float, default=13.8e6)
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--device", default="cpu", help="cpu or cuda")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_default_device(a.device)
    torch.manual_seed(1)
    count = int(a.parameters) // (SIDE * 384) * SIDE * 384
    labs = [Chunks(torch.randn(count)), Tiles(torch.randn(count))]
    other = [lab.encode() for lab in labs]
    for lab, sent in zip(labs, other):  # what comes back without loss is what went in
        assert (lab.back(lab.forward(lab.m)).view_as(lab.m) - lab.m).abs().max() < 1e-4
        measure(lab, sent)
    command = [a.sotto, f"--device={a.device}", str(a.threads), str(a.parameters), "-"]
    ours = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rows = []
    for _ in range(a.turns):
        ours.stdin.write("\n")
        ours.stdin.flush()
        mine = [float(x) for x in ours.stdout.readline().split()]
        theirs = [x for lab, sent in zip(labs, other) for x in measure(lab, sent)]
        rows.append((mine, theirs))
    ours.stdin.close()
    ours.wait()
    for i, name in enumerate(("chunks encode", "chunks decode", "tiles encode", "tiles decode")):
        ratio = [theirs[i] / mine[i] for mine, theirs in rows]
        speed = [count / 1e6 / statistics.median(row[side][i] for row in rows) for side in range(2)]
        ms = [count / 1e3 / x for x in speed]
        print(f"{name:14} sotto {speed[0]:6.1f} ({ms[0]:.2f} ms)  torch {torch.__version__} {speed[1]:6.1f} ({ms[1]:.2f} ms) "
              f"million/s  ratio {statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})")


if __name__ == "__main__":
    main()
