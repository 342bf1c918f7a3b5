"""Long runs that look for what short tests miss: leaks after violent deaths, growth over hours, hostile input.

    python tests/soak leaks --rounds 110 --seed 7      # 11 kinds of death at random moments
    python tests/soak churn --rounds 300               # one kernel connects, computes and disconnects
    python tests/soak training --rounds 100 --seed 7   # a training run loses slices, its proxy, the head
    python tests/soak suspends --rounds 100 --seed 7   # suspends and resumes with deaths in between
    python tests/soak beside --rounds 100 --seed 7     # kernels beside the chips on a line that is cut
    python tests/soak uploads --rounds 1000            # a kernel loses its proxy in the middle of many uploads
    python tests/soak interrupts --rounds 5000         # SIGINT at random moments of all commands that block
    python tests/soak fuzz --seconds 120 --seed 7      # hostile input at every door

Each prints a table, and the seed that repeats its choices; the exit code is 1 when something leaked, grew or broke.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys

import beside
import churn
import fuzz
import interrupts
import leaks
import suspends
import training
import uploads
from machine import Machine


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    modules = {
        "leaks": leaks,
        "beside": beside,
        "churn": churn,
        "fuzz": fuzz,
        "interrupts": interrupts,
        "suspends": suspends,
        "training": training,
        "uploads": uploads,
    }
    for kind, module in modules.items():
        command = kinds.add_parser(kind, help=(module.__doc__ or "").splitlines()[0])
        if kind == "fuzz":
            command.add_argument("--seconds", type=float, default=60.0, help="for each door (default: 60)")
        else:
            default = {"leaks": 2 * len(leaks.DEATHS), "churn": 50, "uploads": 500, "interrupts": 1000}.get(kind, 100)
            command.add_argument("--rounds", type=int, default=default, help=f"how many (default: {default})")
        if kind == "beside":
            command.add_argument("--longest", type=float, default=40.0, help="seconds of the longest cut (default: 40)")
        if kind == "interrupts":
            command.add_argument("--kernels", type=int, default=3, help="how many at once (default: 3)")
        known = {
            "leaks": leaks.DEATHS,
            "beside": beside.KINDS,
            "fuzz": fuzz.DOORS,
            "interrupts": interrupts.KINDS,
            "suspends": suspends.KINDS,
            "training": training.KINDS,
        }.get(kind)
        if known:
            command.add_argument("--only", nargs="+", choices=list(known), default=list(known), metavar="KIND")
        command.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="repeats an earlier run")
    asked = parser.parse_args()
    # Ended from outside, it still ends its cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"{asked.kind}, --seed {asked.seed}", flush=True)
    slices = {"training": training.SLICES, "interrupts": interrupts.slices_for(getattr(asked, "kernels", 0))}
    with Machine(slices.get(asked.kind, 2)) as machine:
        if asked.kind == "leaks":
            sound = leaks.run(machine, rounds=asked.rounds, chance=random.Random(asked.seed), only=asked.only)
        elif asked.kind == "beside":
            sound = beside.run(
                machine, rounds=asked.rounds, longest=asked.longest, chance=random.Random(asked.seed), only=asked.only
            )
        elif asked.kind == "churn":
            sound = churn.run(machine, rounds=asked.rounds)
        elif asked.kind == "interrupts":
            sound = interrupts.run(
                machine, rounds=asked.rounds, seed=asked.seed, kernels=asked.kernels, only=asked.only
            )
        elif asked.kind == "uploads":
            sound = uploads.run(machine, rounds=asked.rounds)
        elif asked.kind == "suspends":
            sound = suspends.run(machine, rounds=asked.rounds, chance=random.Random(asked.seed), only=asked.only)
        elif asked.kind == "training":
            sound = training.run(machine, rounds=asked.rounds, chance=random.Random(asked.seed), only=asked.only)
        else:
            sound = fuzz.run(machine, seconds=asked.seconds, chance=random.Random(asked.seed), only=asked.only)
    # The process behind kernels beside the chips waits ten seconds for another one.
    left = machine.wait_until_ended(seconds=20)
    if left:
        print("Left after the cluster's end:", *left, sep="\n  ")
    return 0 if sound and not left else 1


sys.exit(main())
