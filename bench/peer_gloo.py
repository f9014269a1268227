#!/usr/bin/env python3
"""Gloo's side of the all-reduce benchmark: torch.distributed between processes of one machine.

Run:  python bench/peer_gloo.py --workers 2
Speaks as bench_comm does: reads lines "gloo BYTES REPEATS", answers each with the seconds of one all_reduce, the mean
of a burst after some that do not count, by rank 0's clock; REPEATS 0 verifies instead and answers 0.
"""
import argparse
import multiprocessing
import os
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(f"peer_gloo.py: {sys.executable} has no torch")


def value(rank, count):
    return ((torch.arange(count) * 7 + rank * 13) % 17 - 8).float()


def verify(rank, size, count):
    x = value(rank, count)                                          # sums of small integers are exact
    dist.all_reduce(x)
    if not torch.equal(x, sum(value(r, count) for r in range(size))):
        raise RuntimeError(f"gloo: wrong sums of {count} elements on rank {rank}")
    return 0.0


def burst(x, repeats):
    for _ in range(1 + repeats // 4):
        dist.all_reduce(x)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(x)
    return (time.perf_counter() - begin) / repeats


def serve(rank, size, store, lines, answer):
    """Lines come over a pipe, so that a rank that waits for one sleeps."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    vectors = {}
    for line in lines:
        count, repeats = int(line.split()[1]) // 4, int(line.split()[2])
        x = vectors.setdefault(count, torch.zeros(count))
        answer(burst(x, repeats) if repeats else verify(rank, size, count))
    dist.destroy_process_group()


def work(rank, size, store, pipe):
    serve(rank, size, store, iter(pipe.recv, None), lambda seconds: None)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--workers", type=int, default=2, help="default 2")
    a = p.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        store, pipes = os.path.join(folder, "store"), []
        for rank in range(1, a.workers):
            here, there = context.Pipe()
            pipes.append(here)
            context.Process(target=work, args=(rank, a.workers, store, there), daemon=True).start()

        def lines():
            for line in sys.stdin:
                for pipe in pipes:
                    pipe.send(line)
                yield line
            for pipe in pipes:
                pipe.send(None)

        serve(0, a.workers, store, lines(), lambda seconds: print(f"{seconds:.9f}", flush=True))


if __name__ == "__main__":
    main()
