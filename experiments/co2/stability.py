#!/usr/bin/env python3
"""Where AdamW, local training, SlowMo and CO2 become unstable on a quadratic: the table of docs/results/co2.md. Seconds.

A worker's gradient is x in units in which one step with a preconditioned rate h (learning rate times curvature over AdamW's root of
v, held fixed) moves x by h m, m <- beta1 m + (1 - beta1) x. All workers are alike, so that their average is a worker's x, and m goes
on from one round to the next. tau such steps are a matrix (P Q; R S) for (x, m), and what they move is D = (1 - P) x - Q m. Then

    SlowMo   M <- beta M + D              x <- x - alpha M    D of the same round
    CO2      M <- beta M + D'/Lambda      x <- x - alpha M    D' of the round before it

are linear in (x, m, M) and (x, m, D', M), and unstable where the matrix of a round has an eigenvalue outside the unit circle.
Lambda, CO2's penalty, depends on x; it is held fixed: 1 without a penalty, 2 in a steady direction at beta = 0.5."""

import math


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def radius(a, squarings=26):
    """The spectral radius: the 2^n-th root of the size of the 2^n-th power."""
    log = 0
    for n in range(squarings):
        size = max(abs(x) for row in a for x in row)
        log += math.log(size) / 2**n
        a = [[x / size for x in row] for row in a]
        a = product(a, a)
    return math.exp(log)


def adamw(h, beta1):
    return [[1 - h * (1 - beta1), -h * beta1], [1 - beta1, beta1]]


def steps(h, beta1, tau):
    power = [[1, 0], [0, 1]]
    for _ in range(tau):
        power = product(power, adamw(h, beta1))
    return power


def slowmo(h, beta1, tau, beta, alpha=1):
    (p, q), (r, s) = steps(h, beta1, tau)
    return [[1 - alpha * (1 - p), alpha * q, -alpha * beta], [r, s, 0], [1 - p, -q, beta]]


def co2(h, beta1, tau, beta=0, penalty=1, alpha=1):
    (p, q), (r, s) = steps(h, beta1, tau)
    return [[1, 0, -alpha / penalty, -alpha * beta], [r, s, 0, 0], [1 - p, -q, 0, 0], [0, 0, 1 / penalty, beta]]


def unstable(matrix):
    return radius(matrix) > 1 + 1e-6


def first(rule, *settings):
    """The least h from which on the rule is unstable, to three digits."""
    h = 0.01
    while h < 100 and not unstable(rule(h, *settings)):
        h *= 1.02
    low, high = h / 1.02, h
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (low, middle) if unstable(rule(middle, *settings)) else (middle, high)
    return high


columns = [("AdamW, local", adamw)] + [(f"CO2 tau {tau}", co2, tau) for tau in (1, 3, 6, 12)]
columns += [("CO2 tau 6, beta .5, Lambda 2", co2, 6, 0.5, 2), ("SlowMo tau 6, beta .5", slowmo, 6, 0.5)]
print("first unstable h   " + " | ".join(name for name, *_ in columns))
for beta1 in (0.9, 0.5, 0):
    print(f"beta1 = {beta1:<10} " + " | ".join(f"{first(rule, beta1, *rest):.3g}" for _, rule, *rest in columns))

for name, rule, *rest in (("CO2, tau 6", co2, 6), ("SlowMo, tau 6, beta .5", slowmo, 6, 0.5)):
    grows = [(radius(rule(h, 0.9, *rest)), h) for h in (0.05 * 1.02**i for i in range(325))] # to 30
    ranges, inside = [], False
    for r, h in grows:
        if (r > 1 + 1e-6) != inside:
            ranges.append(f"{h:.2g}")
            inside = not inside
    print(f"{name}, beta1 = 0.9, h up to 30: unstable from, stable from, ...: {' '.join(ranges)}; grows fastest by "
          f"{max(grows)[0]:.3f} a round at h = {max(grows)[1]:.2g}; by {max(g for g in grows if g[1] < 7)[0]:.3f} below h = 7")
