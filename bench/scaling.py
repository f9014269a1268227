#!/usr/bin/env python3
"""What more threads bring: training steps of one team and of single threads, in turn.

Run:  python bench/scaling.py --sotto build/release/bench_step --threads 16 [--rounds 12] [--gpt2] [--mixed] [--kernels v4]
A round: steps of the team, of a single thread on a core of its own (the next core in each round), and of the team again, three each, of
which the first does not count; and one step on every core at once, each of a process of its own with one thread. Prints

  efficiency   one thread's time over what the team's threads take together: 1 if each did as much as one alone
  kept         the same of the processes, which share nothing but the machine: what its memory, its caches, cores that share
               their units and other users leave of one thread's speed; a little too much where some end long before others
  of that      the team's rate over that of the processes, in the same round: the rest is lost to the team itself

as the median of the rounds (quartiles). For every core to have its turn, --rounds is a multiple of --threads.
"""
import argparse
import os
import statistics
import sys
import time

from step import GPT2, SMALL, Contender, program


def quartiles(values, scale=1, digits=2):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return f"{scale * median:.{digits}f} ({scale * low:.{digits}f} .. {scale * high:.{digits}f})"


class Scaling:
    """One team, and a process of one thread on every core."""

    def __init__(self, a):
        self.threads, self.cores = a.threads, sorted(os.sched_getaffinity(0))[:a.threads]
        if len(self.cores) < a.threads:
            sys.exit(f"{a.threads} threads, {len(self.cores)} cores")
        command = [a.sotto] + [f"--{k}={v}" for k, v in (GPT2 if a.gpt2 else SMALL).items()] + ["--mixed"] * a.mixed
        command += [f"--kernels={a.kernels}"] if a.kernels else []
        self.team = Contender("team", command + [f"--threads={a.threads}"], False, a.threads)
        self.single = []
        self.steps([self.team])  # which says what is wrong, once
        self.single = [Contender(f"one thread, core {core}", ["taskset", "-c", str(core)] + command + ["--threads=1"], False, 1)
                       for core in self.cores]
        self.steps(self.single)

    def steps(self, contenders):
        """A step of each, at once: their seconds."""
        time.sleep(0.02)  # threads of whoever was before stop to wait actively
        for c in contenders:
            c.ask(c.only)
        seconds = [c.answer() for c in contenders]
        if None in seconds:
            sys.exit(f"{contenders[seconds.index(None)].name}: has ended")
        return seconds

    def warm(self, contender):
        """Two steps behind one that does not count."""
        return [self.steps([contender])[0] for _ in range(3)][1:]

    def round(self, index):
        before = self.warm(self.team)
        alone = statistics.mean(self.warm(self.single[index % self.threads]))
        team = statistics.mean(before + self.warm(self.team))
        rate = sum(1 / seconds for seconds in self.steps(self.single))  # steps a second
        print(f"round {index + 1}: one thread {1e3 * alone:.0f} ms, {self.threads} threads {1e3 * team:.0f} ms, "
              f"{self.threads} processes at once {1e3 * self.threads / rate:.0f} ms", flush=True)
        return alone, team, rate

    def close(self):
        for c in [self.team] + self.single:
            c.close()


def report(rounds, threads):
    print(f"one thread             {quartiles([alone for alone, _, _ in rounds], 1e3, 0)} ms a step")
    print(f"{threads:2} threads             {quartiles([team for _, team, _ in rounds], 1e3, 0)} ms")
    print(f"{threads:2} processes at once   {quartiles([threads / rate for _, _, rate in rounds], 1e3, 0)} ms, each a step of its own")
    print(f"efficiency {quartiles([alone / team / threads for alone, team, _ in rounds])}, "
          f"kept {quartiles([alone * rate / threads for alone, _, rate in rounds])}, "
          f"of that {quartiles([1 / team / rate for _, team, rate in rounds])}; {len(rounds)} rounds")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="path of bench_step")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the team; default: all cores")
    p.add_argument("--rounds", type=int, help="default: one for every core, 12 at least")
    p.add_argument("--gpt2", action="store_true", help="GPT-2 124M instead of L6 H6 C384 V8192; 2.5 GB for every core")
    p.add_argument("--mixed", action="store_true", help="bf16 parameters and products")
    p.add_argument("--kernels", help="amx, v4, v3, bf16 or baseline, instead of the best that there are")
    a = p.parse_args()
    a.rounds = a.rounds or max(12, a.threads)
    scaling = Scaling(a)
    try:
        rounds = [scaling.round(i) for i in range(a.rounds)]
        report(rounds, a.threads)
    finally:
        scaling.close()


if __name__ == "__main__":
    main()
