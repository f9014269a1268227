"""The tables of costs in docs/methods: bytes as `sotto train --dry_run` counts, memory as a run of the null oracle reports."""
import json
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

MODELS = [("gpt2.ini", "GPT-2, 124 M"), ("llama.ini", "Llama-like, 6.7 B")]
CATEGORIES = ["parameters", "gradients", "optimizer", "communication", "outer", "scratch"]
# Options that a method needs here: a length with exchanges, of which none is in the last step; stages; nodes of several workers.
EXTRA = {"diloco": ["--steps=1001"], "async-diloco": ["--steps=1001"], "every": ["--steps=70"],
         "cdp": ["--stages=8", "--steps=1000"], "flexdemo": ["--nodes=2"]}
ABOUT = """\
Eight workers on {where}, mixed precision, defaults of the method. The program itself counts the bytes that a worker sends
and the memory of the largest worker; activations are not included. Seconds are {seconds}, without latency and without overlap.
"""


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cost.py: {' '.join(words)}: {done.stderr}")
    return done.stdout


def measure(build, method, model):
    """Returns (bytes a round, bytes a round to other nodes, bytes of an exchange or 0, rounds between exchanges, report)."""
    begin = [os.path.join(build, "sotto"), "train", os.path.join(os.path.dirname(os.path.abspath(__file__)), model),
             "--strategy=" + method] + EXTRA.get(method, [])
    with tempfile.TemporaryDirectory() as folder:
        text = run(begin + ["--dry_run", "--out=" + os.path.join(folder, "run")])
        run(begin + ["--steps=8", "--out=" + os.path.join(folder, "run")])
        with open(os.path.join(folder, "run", "report.json"), encoding="utf-8") as file:
            report = json.load(file)
    wire = re.search(r"^wire: (?:about )?([\d.]+) bytes a step and worker(?:, ([\d.]+) of them to other nodes)?", text, re.M)
    every = re.search(r"(?:exchange|answer are) ([\d.]+) of each worker every (\d+) steps", text)
    total = float(wire.group(1))
    return (total, float(wire.group(2) or total), float(every.group(1)) if every else 0, int(every.group(2)) if every else 1,
            report)


def size(n):
    unit, name = (1e9, "GB") if n >= 1e9 else (1e6, "MB") if n >= 1e6 else (1e3, "kB")
    return f"{digits(n / unit)} {name}"


def seconds(s):
    if s < 120:
        return f"{digits(s, 2)} s"
    return f"{digits(s / 60, 2)} min" if s < 7200 else f"{digits(s / 3600, 2)} h"


def digits(x, most=3):
    """A number in `most` digits, or in all digits before the point."""
    text = f"{x:.{most}g}"
    return f"{x:.0f}" if "e" in text else text


def cost_table(method, cells):
    """Markdown of one method; cells: what `measure` returned for each model."""
    nodes = 2 if "--nodes=2" in EXTRA.get(method, []) else 8
    sharing = 8 // nodes  # workers with one adapter
    every = cells[0][3]
    rows = [("Bytes a worker sends in a round" + (", on average" if every > 1 else ""), [size(c[2] / c[3] if every > 1 else c[0]) for c in cells])]
    if nodes < 8:
        rows.append(("- of them to other nodes", [size(c[1]) for c in cells]))
    if every > 1:
        what = "a push and its answer" if method == "async-diloco" else "an exchange"
        rows.append((f"Bytes of {what}, every {every} rounds", [size(c[2]) for c in cells]))
    sent = [(c[2] if every > 1 else c[1]) * sharing for c in cells]
    what = "The exchange" if every > 1 else "The round's bytes"
    for rate, name in ((1e9, "1 Gbit/s"), (1e8, "100 Mbit/s")):
        rows.append((f"{what} at {name}", [seconds(8 * n / rate) for n in sent]))
    rows.append(("Memory of a worker", [size(c[4]["memory"]) for c in cells]))
    for name in CATEGORIES:
        if any(c[4]["memory_" + name] >= 1e6 for c in cells):
            rows.append(("- " + name, [size(c[4]["memory_" + name]) for c in cells]))
    where = "eight nodes" if nodes == 8 else f"{nodes} nodes of {sharing}"
    by = "bytes over bandwidth" if nodes == 8 else f"bytes of a node's {sharing} workers to other nodes over the bandwidth of its adapter"
    out = [wrap(ABOUT.format(where=where, seconds=by)), "", "| | " + " | ".join(name for _, name in MODELS) + " |", "|---|---:|---:|"]
    return "\n".join(out + [f"| {name} | {' | '.join(values)} |" for name, values in rows]) + "\n"


ALL = """\
Every method with its defaults, eight workers on eight nodes (`flexdemo`: two nodes of four), mixed precision. Bytes are those of
a round, on average, that a worker sends (`flexdemo`: to other nodes); seconds are these bytes over 1 Gbit/s, of all workers of
a node, without overlap. Memory is without activations. The pages of the methods have the parts.
"""


def average(cell):
    """Bytes to other nodes in a round, of a worker."""
    return cell[2] / cell[3] if cell[3] > 1 else cell[1]


def all_table(methods, cells):
    """Markdown with a line for each method; cells: by method, what `measure` returned for each model."""
    names = " | ".join(f"{name}: bytes | at 1 Gbit/s | memory" for _, name in MODELS)
    out = [wrap(ALL), "", "| Method | " + names + " |", "|---|" + "---:|" * (3 * len(MODELS))]
    for method in methods:
        sharing = 4 if "--nodes=2" in EXTRA.get(method, []) else 1
        row = []
        for c in cells[method]:
            row += [size(average(c)), seconds(8 * average(c) * sharing / 1e9), size(c[4]["memory"])]
        out.append(f"| [{method}]({method}.md) | {' | '.join(row)} |")
    return "\n".join(out) + "\n"


def wrap(text, columns=98):
    out, line = [], ""
    for word in text.split():
        if len(line) + 1 + len(word) > columns:
            out.append(line)
            line = ""
        line = (line + " " + word).strip()
    return "\n".join(out + [line])


METHODS = ("ddp zero1 fsdp dpu acco-wp acco cdp local-sgd overlap-local-sgd slowmo co2 diloco async-diloco demo flexdemo random "
           "striding every").split()


def cost_blocks(build, wanted):
    """Returns the tables of the methods in `wanted`, and of all, by ("cost", method)."""
    methods = [m for m in METHODS if m in wanted or "all" in wanted]
    jobs = [(method, model) for method in methods for model, _ in MODELS]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        done = dict(zip(jobs, pool.map(lambda job: measure(build, *job), jobs)))
    cells = {method: [done[method, model] for model, _ in MODELS] for method in methods}
    blocks = {("cost", method): cost_table(method, cells[method]) for method in methods}
    blocks["cost", "all"] = all_table(methods, cells)
    return blocks
