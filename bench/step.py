#!/usr/bin/env python3
"""Training steps of sotto and PyTorch, interleaved step by step, as ratios.

Run (in a venv with torch):  python bench/step.py --sotto build/bench_step [--steps 20] [--gpt2 | --resnet18] [--busy] [--eager]
Contenders: sotto, torch eager, torch compiled (of a ResNet: contiguous, channels_last); same model, threads and batch. After a warm-up of all, every
round runs one step of each in turn, so that noise of the machine hits all alike. Prints median, quartiles,
tokens/s, peak memory, and the ratio of sotto to the better of PyTorch's two: of medians, and the median of the
ratios round by round. --busy is for one thread on a machine that others use: processor time, and the shortest.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = dict(layers=6, heads=6, width=384, vocab=8192, batch=4, seq=256)
GPT2 = dict(layers=12, heads=12, width=768, vocab=50257, batch=4, seq=256)

RESNET18 = dict(preset="resnet18-cifar", side=32, batch=64)


def processor_seconds(pid):
    """Of all its threads so far."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Contender:
    def __init__(self, name, command, steps, warmup, busy):
        self.name, self.seconds, self.busy = name, [], busy
        self.process = subprocess.Popen(command + ["--lockstep", f"--steps={steps}", f"--warmup={warmup}"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self):
        before = processor_seconds(self.process.pid)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        report = json.loads(self.process.stdout.readline())
        if report["step"] >= 0:
            self.seconds.append(processor_seconds(self.process.pid) - before if self.busy else report["seconds"])
        return report

    def finish(self):
        self.process.stdin.close()
        self.peak = json.loads(self.process.stdout.readline())["peak_rss_mb"]
        self.process.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, help="path of bench_step")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--mixed", action="store_true", help="bf16 parameters and products; PyTorch: bf16 autocast")
    p.add_argument("--gpt2", action="store_true", help="GPT-2 124M instead of L6 H6 C384 V8192")
    p.add_argument("--resnet18", action="store_true", help="ResNet-18 over 64 images of 32 x 32")
    p.add_argument("--busy", action="store_true")
    p.add_argument("--eager", action="store_true", help="without the compiled contender, which takes a minute to start")
    a = p.parse_args()
    if a.busy:
        a.threads = 1
    sizes = RESNET18 if a.resnet18 else GPT2 if a.gpt2 else SMALL
    shape = [f"--{k}={v}" for k, v in sizes.items()] + [f"--threads={a.threads}"] + ["--mixed"] * a.mixed
    peer = [sys.executable, os.path.join(HERE, "peer_torch.py")]
    kinds = (("contiguous", []), ("channels_last", ["--channels-last"])) if a.resnet18 else \
            (("eager", []), ("compiled", ["--compile"]))
    kinds = kinds[:1] if a.eager else kinds
    contenders = [Contender("sotto", [a.sotto] + shape, a.steps, a.warmup, a.busy)]
    contenders += [Contender(f"torch {name}", peer + shape + more, a.steps, a.warmup, a.busy) for name, more in kinds]
    for _ in range(a.warmup + a.steps):
        for c in contenders:
            c.step()
    for c in contenders:
        c.finish()

    tokens, unit = sizes["batch"] * sizes.get("seq", 1), "tokens" if "seq" in sizes else "images"
    print(" ".join(f"{k}={v}" for k, v in sizes.items()), f"threads={a.threads} steps={a.steps} {'mixed' if a.mixed else 'fp32'}, interleaved")
    typical = min if a.busy else statistics.median
    for c in contenders:
        low, _, high = statistics.quantiles(c.seconds, n=4)
        median = typical(c.seconds)
        print(f"{c.name:20s} {1e3 * median:8.1f} ms  quartiles {1e3 * low:.1f} .. {1e3 * high:.1f}  "
              f"{tokens / median:8.0f} {unit}/s  peak {c.peak:.0f} MB")
    best = min(contenders[1:], key=lambda c: typical(c.seconds))
    ours = contenders[0]
    pairs = [b / o for b, o in zip(best.seconds, ours.seconds)]
    low, median, high = statistics.quantiles(pairs, n=4)
    print(f"sotto / {best.name}: {typical(best.seconds) / typical(ours.seconds):.3f} of {'the shortest' if a.busy else 'medians'}; "
          f"round by round {median:.3f} ({low:.3f} .. {high:.3f})")


if __name__ == "__main__":
    main()
