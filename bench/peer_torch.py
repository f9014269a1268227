#!/usr/bin/env python3
"""PyTorch's side of the training-step benchmark: a GPT-2 style model, with --llama a Llama, one batch of random tokens, fp32
or bf16 autocast; or, with --preset resnet18-cifar, a ResNet-18 over random images, with --channels-last in that memory format.

Run:  python bench/peer_torch.py --layers 6 --heads 6 --width 384 --vocab 8192 --batch 4 --seq 256 --threads 2
A step is zero_grad, forward, backward, AdamW. Prints {"step", "seconds", "loss"} after each step (warm-up steps are
numbered below 0) and {"median", "tokens_per_s", "peak_rss_mb"} at the end. With --lockstep each step waits for a
line on stdin, so that a driver can interleave contenders step by step; the line may end in a number of threads.
"""
import argparse
import ctypes
import json
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def attention_math(q, k, v, mask):
    """softmax(q k' / sqrt(d)) v, with mask [T,T] -inf above the diagonal."""
    return F.softmax(q @ k.transpose(-1, -2) * q.size(-1) ** -0.5 + mask, dim=-1) @ v


class Block(nn.Module):
    def __init__(self, c, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.out = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, dim=2))
        if self.attention == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = attention_math(q, k, v, mask)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, a.width), nn.Embedding(a.seq, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads, a.attention) for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.width)
        self.register_buffer("mask", torch.full((a.seq, a.seq), float("-inf")).triu(1), persistent=False)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.size(1)]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.ln_f(x) @ self.wte.weight.t()                 # tied head
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LlamaBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        c, self.heads, self.kv_heads = a.width, a.heads, a.kv_heads or a.heads
        self.d = c // self.heads
        self.ln_1, self.ln_2 = nn.RMSNorm(c), nn.RMSNorm(c)
        self.q, self.k, self.v = (nn.Linear(c, h * self.d, bias=False) for h in (self.heads, self.kv_heads, self.kv_heads))
        self.proj, self.out = nn.Linear(c, c, bias=False), nn.Linear(a.mlp, c, bias=False)
        self.gate, self.up = nn.Linear(c, a.mlp, bias=False), nn.Linear(c, a.mlp, bias=False)

    def forward(self, x, turn):
        b, t, c = x.shape
        n = self.ln_1(x)
        q, k, v = (w(n).view(b, t, -1, self.d).transpose(1, 2) for w in (self.q, self.k, self.v))
        q, k = (y * turn[0] + torch.cat((-y[..., self.d // 2:], y[..., :self.d // 2]), -1) * turn[1] for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        n = self.ln_2(x)
        return x + self.out(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.head = nn.Embedding(a.vocab, a.width), nn.Linear(a.width, a.vocab, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(a) for _ in range(a.layers))
        self.ln_f = nn.RMSNorm(a.width)
        d = a.width // a.heads
        angle = torch.outer(torch.arange(a.seq), 10000.0 ** -(torch.arange(0, d, 2) / d)).repeat(1, 2)
        self.register_buffer("turn", torch.stack((angle.cos(), angle.sin())).bfloat16() if a.mixed
                             else torch.stack((angle.cos(), angle.sin())), persistent=False)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x, self.turn)
        return self.loss(x, targets)


def conv(c_in, c_out, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(c_out))


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.first, self.second = conv(c_in, c_out, 3, stride), conv(c_out, c_out, 3)
        self.shortcut = nn.Identity() if c_in == c_out else conv(c_in, c_out, 1, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x), True)) + self.shortcut(x), True)


class ResNet18(nn.Module):
    """With the stem for CIFAR."""

    def __init__(self):
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        self.stem, self.head = conv(3, 64, 3), nn.Linear(512, 10)
        self.blocks = nn.Sequential(*(Residual(widths[i + j], widths[i + 1], 1 if i == 0 or j else 2)
                                      for i in range(4) for j in range(2)))

    def forward(self, x, targets):
        return F.cross_entropy(self.head(self.blocks(F.relu(self.stem(x), True)).mean((2, 3))), targets)


def make_optimizer(model):
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2]),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    options = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    try:
        return torch.optim.AdamW(groups, fused=True, **options)
    except RuntimeError:                                            # no fused kernel for this device
        return torch.optim.AdamW(groups, **options)


def keep_memory():
    """Make glibc keep freed blocks: page faults on fresh activations cost PyTorch several percent of a step."""
    m_trim_threshold, m_mmap_max = -1, -4                           # from malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(m_trim_threshold, -1)
        mallopt(m_mmap_max, 0)


def start_clock(device):
    """Returns what stops it, and tells the seconds: on a GPU by its own clock."""
    if device == "cpu":
        begin = time.perf_counter()
        return lambda: time.perf_counter() - begin
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()

    def stop():
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3
    return stop


def peak_rss_mb():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def parse():
    p = argparse.ArgumentParser(description="Time PyTorch training steps of a GPT-2 style model.")
    for name, default in dict(layers=6, heads=6, width=384, vocab=8192, batch=4, seq=256, threads=2,
                              steps=10, warmup=2).items():
        p.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu; cuda: times are the GPU's")
    p.add_argument("--llama", action="store_true", help="RMS norm, rotations, SwiGLU; the output projection is not tied")
    p.add_argument("--kv_heads", type=int, default=0, help="of a llama; default: as heads")
    p.add_argument("--mlp", type=int, default=0, help="of a llama: how wide")
    p.add_argument("--side", type=int, default=32, help="of images; default 32")
    p.add_argument("--preset", choices=("", "resnet18-cifar"), default="", help="a model over images")
    p.add_argument("--channels-last", action="store_true", help="of images")
    p.add_argument("--compile", nargs="?", const="whole", choices=("whole", "blocks"),
                   help="use torch.compile; blocks: on a block and on the loss, which starts sooner")
    p.add_argument("--mixed", action="store_true", help="bf16 autocast over fp32 parameters")
    p.add_argument("--attention", choices=("sdpa", "math"), default="sdpa", help="default sdpa")
    p.add_argument("--lockstep", action="store_true", help="read a line from stdin before each step")
    return p.parse_args()


def main():
    a = parse()
    if a.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    keep_memory()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    if a.preset:
        form = torch.channels_last if a.channels_last else torch.contiguous_format
        model = ResNet18().to(memory_format=form)
        tokens = torch.randn(a.batch, 3, a.side, a.side).to(memory_format=form)
        targets = torch.randint(10, (a.batch,))
    else:
        text = torch.randint(a.vocab, (a.batch, a.seq + 1))
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        with torch.device(a.device):
            model = Llama(a) if a.llama else GPT2(a)
    model, tokens, targets = (x.to(a.device) for x in (model, tokens, targets))
    opt = make_optimizer(model)
    loss_of = torch.compile(model) if a.compile == "whole" else model
    if a.compile == "blocks":
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)

    times, threads = [], a.threads
    for step in range(-a.warmup, a.steps):
        if a.lockstep:
            line = sys.stdin.readline()
            if not line:
                break
            if int((line.split() + [threads])[1]) != threads:
                threads = int(line.split()[1])
                torch.set_num_threads(threads)
        stop = start_clock(a.device)
        opt.zero_grad(set_to_none=True)
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.mixed):
            loss = loss_of(tokens, targets)
        loss.backward()
        opt.step()
        seconds = stop()
        print(json.dumps(dict(step=step, seconds=round(seconds, 6), loss=loss.item(), peak_rss_mb=peak_rss_mb())), flush=True)
        if step >= 0:
            times.append(seconds)

    if times:
        median = statistics.median(times)
        print(json.dumps(dict(median=round(median, 6), tokens_per_s=round(a.batch * (1 if a.preset else a.seq) / median, 1),
                              peak_rss_mb=peak_rss_mb())), flush=True)


if __name__ == "__main__":
    main()
