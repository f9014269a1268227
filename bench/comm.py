#!/usr/bin/env python3
"""All-reduce of fp32 vectors between ranks of one machine: sotto, MPI, gloo and memcpy, burst by burst in turn.

Run:  python bench/comm.py --sotto build/bench_comm [--workers 2] [--rounds 30] [--python VENV/bin/python]
Contenders: our threads, our MPI ranks (the library's collectives, and our ring), plain blocking MPI_Allreduce, gloo
through torch.distributed, all in place; and memcpy, each rank copying as many bytes between two places of its own,
all ranks at once. Each is verified first. Every round runs a short burst of each, so that noise of the machine hits
all alike; who waits sleeps. A line a size and contender: median and quartiles of a call, bus bandwidth
2(N-1)/N * bytes / seconds (of memcpy too, though it sums nothing), and its time over that of threads, round by round.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys

from step import program

HERE = os.path.dirname(os.path.abspath(__file__))


class Peer:
    """A process that runs contenders; ask() gives None once it is gone."""

    def __init__(self, command, contenders):
        self.contenders = contenders
        self.process = None
        if shutil.which(command[0]):
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what, size, repeats):
        try:
            self.process.stdin.write(f"{what} {size} {repeats}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (AttributeError, BrokenPipeError, ValueError):
            return None

    def finish(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def mpi_command(mpirun, workers):
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout if shutil.which(mpirun) else ""
    command = [mpirun, "-n", str(workers)]
    if "Open MPI" in version and workers > (os.cpu_count() or 1):
        command.append("--oversubscribe")
    if "Open MPI" in version and os.geteuid() == 0:
        command.append("--allow-run-as-root")
    return command, version.splitlines()[0] if version else "no MPI"


def measure(peers, size, rounds):
    """{contender: seconds by round}; a contender that answers wrongly or not at all ends the run."""
    seconds = {what: [] for peer in peers for what in peer.contenders}
    repeats = max(2, min(200, (20 << 20) // size))
    for _ in range(rounds):
        for peer in peers:
            for what in peer.contenders:
                seconds[what].append(peer.ask(what, size, repeats))
                if seconds[what][-1] is None:
                    sys.exit(f"comm.py: {what} stopped at {size} bytes")
    return seconds


def report(seconds, size, workers):
    for what, times in seconds.items():
        low, median, high = statistics.quantiles(times, n=4)
        ratio_low, ratio, ratio_high = statistics.quantiles([t / o for t, o in zip(times, seconds["threads"])], n=4)
        print(f"{size:9d} bytes  {what:9s} {1e6 * median:10.1f} us ({1e6 * low:.1f} .. {1e6 * high:.1f})  "
              f"{2 * (workers - 1) / workers * size / median / 1e9:6.2f} GB/s  "
              f"{ratio:6.2f} x threads ({ratio_low:.2f} .. {ratio_high:.2f})", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--sotto", required=True, type=program, help="path of bench_comm")
    p.add_argument("--workers", type=int, default=2, help="default 2")
    p.add_argument("--rounds", type=int, default=30, help="bursts of each, default 30")
    p.add_argument("--sizes", type=int, nargs="+", default=[4 << 10, 1 << 20, 64 << 20], help="bytes")
    p.add_argument("--mpirun", default="mpirun", help="launcher of the MPI that bench_comm was built with")
    p.add_argument("--python", default=sys.executable, help="one with torch, for gloo; default: this one")
    a = p.parse_args()
    launch, version = mpi_command(a.mpirun, a.workers)
    peers = [Peer([a.sotto, f"--workers={a.workers}"], ["threads", "memcpy"]),
             Peer(launch + [a.sotto], ["mpi", "mpi-ring", "mpi-plain"]),
             Peer([a.python, os.path.join(HERE, "peer_gloo.py"), f"--workers={a.workers}"], ["gloo"])]
    for peer in list(peers):                                        # who cannot sum is left out, and said
        if any(peer.ask(what, size, 0) is None for size in a.sizes for what in peer.contenders):
            print(f"skipped, does not run here: {', '.join(peer.contenders)}")
            peers.remove(peer)
    if not peers or "threads" not in peers[0].contenders:
        sys.exit(f"comm.py: {a.sotto} does not run")
    print(f"{a.workers} ranks, fp32, {a.rounds} bursts of each, interleaved; {version}; load {os.getloadavg()[0]:.2f}")
    for size in a.sizes:
        report(measure(peers, size, a.rounds), size, a.workers)
    for peer in peers:
        peer.finish()


if __name__ == "__main__":
    main()
