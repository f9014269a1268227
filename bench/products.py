#!/usr/bin/env python3
"""Matrix products of GPT-2's linear layers beside the libraries that others use, turn by turn: forward, gradient of x, of w.

Run:  VENV/bin/python bench/products.py --sotto build/bench_ops [--threads 2] [--turns 7] [--half] [--kernels v4]
Contenders: ours; PyTorch (MKL in fp32, oneDNN in bf16); NumPy, where its wheel has OpenBLAS, in fp32. --half: bf16
weights and gradients here, all in bf16 there. A line a shape (rows, in, out): GFLOP/s, median (fastest).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

from step import program

SHAPES = [(1024, 768, 2304), (1024, 768, 768), (1024, 768, 3072), (1024, 3072, 768), (1024, 768, 50257)]
PASSES = ("forward", "dx", "dw")


def products(x, w, dy):
    """Of matrices that know @, by pass."""
    return (lambda: x @ w.T, lambda: dy @ w, lambda: dy.T @ x)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="bench_ops")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--half", action="store_true")
    p.add_argument("--kernels", default="", help="ours: v4, v3, ...; default: the best")
    a = p.parse_args()
    ours = subprocess.Popen([a.sotto, str(a.threads), "-"] + [a.kernels] * bool(a.kernels), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)

    def run_ours(which, shape):
        ours.stdin.write(f"{which} {6 if a.half else 0} linear {' '.join(map(str, shape))}\n")
        ours.stdin.flush()
        return float(ours.stdout.readline().split()[0])

    try:
        run_ours(0, SHAPES[0])
    except (BrokenPipeError, IndexError):  # it has ended, and said why
        ours.communicate()
        sys.exit(1)
    except ValueError:
        ours.kill()
        sys.exit(f"{a.sotto}: does not answer as bench_ops does")

    os.environ["OPENBLAS_NUM_THREADS"] = str(a.threads)  # read when it is loaded
    import numpy
    import torch
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    kind = torch.bfloat16 if a.half else torch.float32

    def timed(product):
        begin = time.perf_counter()
        product()
        return time.perf_counter() - begin

    def alone(run, *args):
        """After a pause, in which the other one's threads stop to wait actively."""
        time.sleep(0.03)
        return run(*args)

    print(f"{a.threads} threads, {'bf16' if a.half else 'fp32'}, torch {torch.__version__}, numpy {numpy.__version__}")
    for rows, n_in, out in SHAPES:
        x, w, dy = (torch.randn(*s).to(kind) for s in ((rows, n_in), (out, n_in), (rows, out)))
        theirs = {"torch": products(x, w, dy)}
        if not a.half:
            theirs["numpy"] = products(x.numpy(), w.numpy(), dy.numpy())
        for which, name in enumerate(PASSES):
            seconds = {}
            for _ in range(a.turns + 1):
                seconds.setdefault("sotto", []).append(alone(run_ours, which, (rows, n_in, out)))
                for who, product in theirs.items():
                    seconds.setdefault(who, []).append(alone(timed, product[which]))
            work = 2e-9 * rows * n_in * out
            line = "  ".join(f"{who} {work / statistics.median(t[1:]):6.0f} ({work / min(t[1:]):6.0f})" for who, t in seconds.items())
            print(f"{rows}x{n_in}x{out:<6} {name:8} {line}", flush=True)
    ours.stdin.close()
    ours.wait()


if __name__ == "__main__":
    main()
