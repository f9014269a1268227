#!/usr/bin/env python3
"""PyTorch's side of the slow-link benchmark: DistributedDataParallel over gloo, a GPT-2 style model (peer_torch.py's), AdamW.

Run on each of two hosts:  python bench/peer_ddp.py --rank R --master 10.0.0.1:29500 [--hook bf16] [--mixed]
Rank 0 prints {"tokens_per_s", "seconds", "parameters", "loss"} of all workers together, after a warm-up.
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from peer_torch import GPT2, keep_memory, make_optimizer


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in dict(rank=0, workers=2, layers=6, heads=6, width=384, vocab=2400, batch=4, seq=256, threads=1,
                              steps=5, warmup=1).items():
        p.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    p.add_argument("--master", required=True, help="HOST:PORT of rank 0")
    p.add_argument("--hook", choices=("none", "bf16"), default="none", help="what gradients are sent as; default fp32")
    p.add_argument("--mixed", action="store_true", help="bf16 autocast over fp32 parameters")
    a = p.parse_args()
    a.attention = "sdpa"
    return a


def main():
    a = parse()
    keep_memory()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)                                            # the same parameters on all
    dist.init_process_group("gloo", init_method=f"tcp://{a.master}", rank=a.rank, world_size=a.workers)
    model = GPT2(a)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if a.hook == "bf16":
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    opt = make_optimizer(model)
    torch.manual_seed(2 + a.rank)
    text = torch.randint(a.vocab, (a.batch, a.seq + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    for step in range(-a.warmup, a.steps):
        if step == 0:
            dist.barrier()
            begin = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.mixed):
            loss = ddp(tokens, targets)
        loss.backward()
        opt.step()
    dist.barrier()
    seconds = time.perf_counter() - begin
    if a.rank == 0:
        print(json.dumps(dict(tokens_per_s=round(a.workers * a.steps * a.batch * a.seq / seconds, 1), seconds=round(seconds, 2),
                              parameters=sum(p.numel() for p in model.parameters()), loss=round(loss.item(), 3))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
