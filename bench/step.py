#!/usr/bin/env python3
"""Training steps of sotto and PyTorch, interleaved step by step, as ratios.

Run (in a venv with torch):  python bench/step.py --sotto build/bench_step [--steps 20] [--gpt2 | --medium | --llama | --resnet18 | --all] [--busy]
      [--eager] [--device cuda --batch 16 --seq 1024]
Contenders: sotto, torch eager, torch compiled (of a ResNet: contiguous, channels_last); same model, threads and batch. All are
resident: they start and compile at once, and sleep while others run. After the warm-up every round runs one step of each in
turn, so that noise of the machine hits all alike. Prints median, quartiles, tokens/s, peak memory, and the ratio of
sotto to the better of PyTorch's two: of medians, and the median of the ratios round by round. --threads takes several
counts (16,8,4): ours has a process for each, PyTorch changes the size of its team. --all: both text models, mixed and fp32. --busy is for
one thread on a machine that others use: processor time, and the shortest. With --device cuda (mixed, activations in bf16) a
contender's turn is ten steps, only the compiled model runs, times are the GPU's, and PyTorch's vocabulary is the next multiple of 64.
"""
import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = dict(layers=6, heads=6, width=384, vocab=8192, batch=4, seq=256)
GPT2 = dict(layers=12, heads=12, width=768, vocab=50257, batch=4, seq=256)
MEDIUM = dict(GPT2, layers=24, heads=16, width=1024)
LLAMA = dict(layers=22, heads=32, kv_heads=4, width=2048, mlp=5632, vocab=32000, batch=4, seq=256)  # 1.1 G parameters

RESNET18 = dict(preset="resnet18-cifar", side=32, batch=64)


def program(path):
    """For argparse: a file that can be run."""
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{path}: no such program")
    return path


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def processor_seconds(pid):
    """Of all its threads so far."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Contender:
    """One process; `seconds` are its steps, by the number of threads."""

    def __init__(self, name, command, busy, threads=None, errors=None):
        self.errors = errors
        self.name, self.seconds, self.busy, self.peak, self.only = name, {}, busy, 0, threads
        self.process = subprocess.Popen(command + ["--lockstep", "--steps=100000", "--warmup=0"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                        start_new_session=True)

    def ask(self, threads):
        try:
            self.process.stdin.write(f"go {threads}\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it has ended, and said why: its answer is none
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def answer(self, deadline=None):
        """Of the step that was asked for; None: it did not come in time."""
        if deadline and not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            return None
        line = self.process.stdout.readline()
        if line.startswith("{"):
            self.peak = json.loads(line)["peak_rss_mb"]
            return json.loads(line)["seconds"]
        return None

    def step(self, threads, follows=False):
        if not follows:
            time.sleep(0.02)  # the threads of the one before stop to wait actively
        before = processor_seconds(self.process.pid)
        self.ask(threads)
        took = self.answer()
        if self.busy:
            took = processor_seconds(self.process.pid) - before
        self.seconds.setdefault(threads, []).append(took)

    def why(self):
        """The last that it said before it ended."""
        self.errors.seek(0)
        return (self.errors.read().split("\n")[:-1] or ["it has ended"])[-1]

    def close(self):
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # and those that compile for it
            self.process.wait()


class Race:
    """One model in one type: its contenders."""

    def __init__(self, sizes, mixed, a):
        self.sizes, self.mixed, self.a = sizes, mixed, a
        self.turn = 10 if a.device == "cuda" else 1  # steps
        llama = ["--llama"] * ("mlp" in sizes)
        shape = [f"--{k}={v}" for k, v in sizes.items()] + ["--mixed"] * mixed + llama + [f"--device={a.device}"]
        peer = [sys.executable, os.path.join(HERE, "peer_torch.py"), f"--threads={a.threads[0]}"] + shape
        if a.device == "cuda":
            peer.append(f"--vocab={-(-sizes['vocab'] // 64) * 64}")
            shape.append("--activations=bf16")
        kinds = (("contiguous", []), ("channels_last", ["--channels-last"])) if "preset" in sizes else \
                (("compiled", ["--compile=" + ("blocks" if a.blocks else "whole")]), ("eager", []))
        kinds = kinds[-1:] if a.eager else kinds[:1] if a.device == "cuda" else kinds
        self.theirs = [Contender(f"torch {name}", peer + more, a.busy, errors=tempfile.TemporaryFile("w+")) for name, more in kinds]
        self.ours = {t: Contender("sotto", [a.sotto, f"--threads={t}"] + shape, a.busy, t) for t in a.threads}

    def contenders(self):
        return self.theirs + list(self.ours.values())

    def start(self, deadline):
        """The end of a first step of all, which compiles; who does not make it is left out, and without ours there is no race."""
        for c in self.ours.values():
            if c.answer(deadline) is None:
                sys.exit("sotto: no step in time" if time.monotonic() >= deadline else 1)  # else it has said why
        for c in list(self.theirs):
            if c.answer(deadline) is None:
                print(f"{c.name}: {'no step in time' if time.monotonic() >= deadline else c.why()}", flush=True)
                c.close()
                self.theirs.remove(c)

    def run(self, threads, steps):
        for c in [self.ours[threads]] + self.theirs:
            for _ in range(self.a.warmup):
                c.step(threads)
            c.seconds[threads] = []
        for _ in range(steps):
            for c in [self.ours[threads]] + self.theirs:
                for i in range(self.turn):
                    c.step(threads, i > 0)
        self.report(threads, steps)

    def report(self, threads, steps):
        sizes, busy = self.sizes, self.a.busy
        tokens, unit = sizes["batch"] * sizes.get("seq", 1), "tokens" if "seq" in sizes else "images"
        print(" ".join(f"{k}={v}" for k, v in sizes.items()),
              f"threads={threads} steps={steps} {'mixed' if self.mixed else 'fp32'}, interleaved")
        typical = min if busy else statistics.median
        of = lambda c: typical(c.seconds[threads])
        ours = self.ours[threads]
        for c in [ours] + self.theirs:
            low, _, high = quartiles(c.seconds[threads])
            print(f"{c.name:20s} {1e3 * of(c):8.1f} ms  quartiles {1e3 * low:.1f} .. {1e3 * high:.1f}  "
                  f"{tokens / of(c):8.0f} {unit}/s  peak {c.peak:.0f} MB")
        if self.theirs:
            best = min(self.theirs, key=of)
            pairs = [b / o for b, o in zip(best.seconds[threads], ours.seconds[threads])]
            low, median, high = quartiles(pairs)
            print(f"sotto / {best.name}: {of(best) / of(ours):.3f} of {'the shortest' if busy else 'medians'}; "
                  f"round by round {median:.3f} ({low:.3f} .. {high:.3f})")
        sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="path of bench_step")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=2, help="steps of each before those that count, beside the first one")
    p.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[2], help="e.g. 2, or 16,8,4")
    p.add_argument("--mixed", action="store_true", help="bf16 parameters and products; PyTorch: bf16 autocast")
    p.add_argument("--gpt2", action="store_true", help="GPT-2 124M instead of L6 H6 C384 V8192")
    p.add_argument("--medium", action="store_true", help="GPT-2 medium, 355M")
    p.add_argument("--llama", action="store_true", help="a Llama of 1.1G parameters")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--batch", type=int, help="sequences; default 4")
    p.add_argument("--seq", type=int, help="their length; default 256")
    p.add_argument("--resnet18", action="store_true", help="ResNet-18 over 64 images of 32 x 32")
    p.add_argument("--all", action="store_true", help="GPT-2 124M and L6 H6 C384 V8192 (thrice the steps), mixed and fp32")
    p.add_argument("--busy", action="store_true")
    p.add_argument("--eager", action="store_true", help="without the compiled contender, which takes minutes to start")
    p.add_argument("--blocks", action="store_true", help="compiles a block and the loss, not the whole model: in less time")
    p.add_argument("--patience", type=float, default=600, help="seconds for the first step; default 600")
    a = p.parse_args()
    if a.busy:
        a.threads = [1]
    if len(a.threads) > 1:
        os.environ["TORCHINDUCTOR_CPP_DYNAMIC_THREADS"] = "1"
    sizes = RESNET18 if a.resnet18 else GPT2 if a.gpt2 else MEDIUM if a.medium else LLAMA if a.llama else SMALL
    sizes = dict(sizes, **{k: v for k, v in (("batch", a.batch), ("seq", a.seq)) if v})
    kinds = [(sizes, a.mixed or a.device == "cuda")]
    if a.all:
        kinds = [(GPT2, True), (GPT2, False), (SMALL, True), (SMALL, False)]
    races = [Race(sizes, mixed, a) for sizes, mixed in kinds]
    deadline = time.monotonic() + a.patience
    try:
        for race in races:
            for c in race.contenders():
                c.ask(c.only or a.threads[0])
        for race in races:
            race.start(deadline)
        for threads in a.threads:
            for race in races:
                race.run(threads, a.steps * (3 if a.all and race.sizes is SMALL else 1))
    finally:
        for race in races:
            for c in race.contenders():
                c.close()


if __name__ == "__main__":
    main()
