#!/usr/bin/env python3
"""Convolutions of ResNets beside PyTorch's, turn by turn: forward, gradient of x, gradient of w.

Run:  VENV/bin/python bench/conv.py --sotto build/bench_ops [--threads 2] [--model 18|50] [--batch 64] [--turns 7] [--half] [--busy]
18 is ResNet-18 with the stem for CIFAR's 32 x 32 pixels, 50 is ResNet-50 at 224 x 224; --half is all in bf16. PyTorch runs
each layer contiguous and channels_last, and the faster one counts. A line a layer: how often the model has it, milliseconds
of both (median) and PyTorch's time over ours; at the end the sums over the model. --busy is for one thread
on a machine that others use: processor time, and the shortest.
"""
import argparse
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

from step import program

# side, in, out, kernel, stride, how often
RESNET18 = [(32, 3, 64, 3, 1, 1), (32, 64, 64, 3, 1, 4),
            (32, 64, 128, 3, 2, 1), (32, 64, 128, 1, 2, 1), (16, 128, 128, 3, 1, 3),
            (16, 128, 256, 3, 2, 1), (16, 128, 256, 1, 2, 1), (8, 256, 256, 3, 1, 3),
            (8, 256, 512, 3, 2, 1), (8, 256, 512, 1, 2, 1), (4, 512, 512, 3, 1, 3)]
RESNET50 = [(224, 3, 64, 7, 2, 1),
            (56, 64, 64, 1, 1, 1), (56, 64, 64, 3, 1, 3), (56, 64, 256, 1, 1, 4), (56, 256, 64, 1, 1, 2),
            (56, 256, 128, 1, 1, 1), (56, 128, 128, 3, 2, 1), (56, 256, 512, 1, 2, 1),
            (28, 128, 512, 1, 1, 4), (28, 512, 128, 1, 1, 3), (28, 128, 128, 3, 1, 3),
            (28, 512, 256, 1, 1, 1), (28, 256, 256, 3, 2, 1), (28, 512, 1024, 1, 2, 1),
            (14, 256, 1024, 1, 1, 6), (14, 1024, 256, 1, 1, 5), (14, 256, 256, 3, 1, 5),
            (14, 1024, 512, 1, 1, 1), (14, 512, 512, 3, 2, 1), (14, 1024, 2048, 1, 2, 1),
            (7, 512, 2048, 1, 1, 3), (7, 2048, 512, 1, 1, 2), (7, 512, 512, 3, 1, 2)]
PASSES = ("forward", "dx", "dw")


class Layer:
    """PyTorch's, in one memory format."""

    def __init__(self, batch, layer, half, form):
        side, c_in, c_out, kernel, stride, _ = layer
        kind = torch.bfloat16 if half else torch.float32
        self.stride, self.pad = stride, kernel // 2
        self.x = torch.randn(batch, c_in, side, side).to(kind).to(memory_format=form)
        self.w = torch.randn(c_out, c_in, kernel, kernel).to(kind).to(memory_format=form)
        self.dy = torch.randn_like(F.conv2d(self.x, self.w, None, stride, self.pad)).to(memory_format=form)

    def run(self, which, clock):
        begin = clock()
        if which == 0:
            F.conv2d(self.x, self.w, None, self.stride, self.pad)
        else:
            torch.ops.aten.convolution_backward(self.dy, self.x, self.w, None, [self.stride] * 2, [self.pad] * 2, [1, 1],
                                                False, [0, 0], 1, [which == 1, which == 2, False])
        return clock() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="bench_ops")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--model", type=int, choices=(18, 50), default=18)
    p.add_argument("--batch", type=int, default=0, help="default 64 for 18, 8 for 50")
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--half", action="store_true")
    p.add_argument("--busy", action="store_true")
    a = p.parse_args()
    batch = a.batch or (64 if a.model == 18 else 8)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    ours = subprocess.Popen([a.sotto, str(a.threads), "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def alone(run, *args):
        """After a pause, in which the other one's threads stop to wait actively."""
        time.sleep(0.03)
        return run(*args)

    def run_ours(which, shape):
        ours.stdin.write(f"{which} {int(a.half)} conv {shape}\n")
        ours.stdin.flush()
        return float(ours.stdout.readline().split()[a.busy])

    clock, middle = (time.process_time, min) if a.busy else (time.perf_counter, statistics.median)
    total = [[0.0, 0.0] for _ in PASSES]
    with torch.no_grad():
        for layer in RESNET18 if a.model == 18 else RESNET50:
            side, c_in, c_out, kernel, stride, times = layer
            shape = f"{batch} {side} {side} {c_in} {c_out} {kernel} {stride} {kernel // 2}"
            labs = [Layer(batch, layer, a.half, form) for form in (torch.contiguous_format, torch.channels_last)]
            text = []
            for which, name in enumerate(PASSES):
                if which == 1 and c_in == 3:  # nobody asks for the gradient of pixels
                    text.append(f"{'':27}")
                    continue
                run_ours(which, shape), [lab.run(which, clock) for lab in labs]
                turns = [(alone(run_ours, which, shape), *(alone(lab.run, which, clock) for lab in labs))
                         for _ in range(a.turns)]
                mine, *theirs = (middle(t) for t in zip(*turns))
                total[which][0] += times * mine
                total[which][1] += times * min(theirs)
                text.append(f"{name:>8} {mine * 1e3:7.2f} {min(theirs) * 1e3:7.2f} {min(theirs) / mine:5.2f}")
            print(f"{times} x {shape:28}{' '.join(text)}", flush=True)
    ours.stdin.close()
    ours.wait()
    for name, (mine, theirs) in zip(PASSES, total):
        print(f"{name:8} sotto {mine * 1e3:7.1f} ms  torch {theirs * 1e3:7.1f} ms  ratio {theirs / mine:.2f}")
    mine, theirs = (sum(t[i] for t in total) for i in range(2))
    print(f"{'sum':8} sotto {mine * 1e3:7.1f} ms  torch {theirs * 1e3:7.1f} ms  ratio {theirs / mine:.2f}")


if __name__ == "__main__":
    main()
