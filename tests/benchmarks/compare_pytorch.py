#!/usr/bin/env python3
"""Times whole training steps in Gemmill and in PyTorch (eager and torch.compile), and compares their losses.

    cmake --build build --target benchmark_peer
    pip install torch     # any recent PyTorch; torch.compile needs a C++ compiler, too
    python3 tests/benchmarks/compare_pytorch.py [--json FILE] [--quick] [--workload NAME ...]

Both start from the same weights and train on the same data. Contenders are processes of their own that take turns, a
round of ROUND_SECONDS each, and wait without spinning. The table has medians of the rounds during which the machine did
no other work; where these are too few, of the least disturbed, and says so. Biases are not decayed, as in Gemmill.

PyTorch gets what is fastest for it, by trial, for each workload: AdamW fused, foreach or plain, with torch.compile also
a compiled optimizer and a step compiled as a whole; OpenMP threads that spin or sleep while they wait; glibc's malloc
as it is or told to keep what is freed (page faults cost large steps dearly). Denormals are flushed, as Gemmill does,
and it need not read its losses. Gemmill is tried with both ways to wait.

--json FILE: {"workloads": [{"name", "gemmill_seconds", "pytorch_eager_seconds", "pytorch_compile_seconds" (or null),
"ratio" (the faster of the two / gemmill), "losses_equal", ...}]}. Exit status 1: losses of LOSS_STEPS steps differ by
more than LOSS_TOLERANCE relative, or something is missing.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PEER = str(pathlib.Path(__file__).resolve().parents[2] / "build/tests/benchmarks/peer")
ROUND_SECONDS = 0.3
LEAST_ROUNDS = 7
MOST_ROUNDS = 28
QUIET = 0.05  # the most that others may use of the machine during a round that counts
LOSS_STEPS = 20
LOSS_TOLERANCE = 1e-5

# Environments. 32 MiB is the most that glibc takes for blocks that are mapped (and unmapped) on their own.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
           "MALLOC_TOP_PAD_": str(64 << 20)}
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
SETTINGS = {"spinning": {}, "passive": PASSIVE,
            "spinning, keeping malloc": KEEPING, "passive, keeping malloc": {**PASSIVE, **KEEPING}}
EAGER = ["eager-fused", "eager-foreach", "eager-plain"]
COMPILE = ["compile-fused", "compile-foreach", "compile-plain", "compile-compiled", "compile-whole"]


def fail(message):
    raise SystemExit(f"error: {message}")


def torch_step(torch, directory, variant):
    """A step of the workload that peer.cc dumped, from its initial weights; variant: "eager|compile-OPTIMIZER"."""
    mode, kind = variant.split("-")
    description = json.loads((directory / "workload.json").read_text())
    sizes = description["sizes"]

    def load(name, dtype, *shape):
        return torch.frombuffer(bytearray((directory / name).read_bytes()), dtype=dtype).reshape(shape).clone()

    x = load("x.f32", torch.float32, description["batch"], sizes[0])
    label = load("label.i64", torch.int64, description["batch"])
    parameters = []
    groups = {}
    for i, entry in enumerate(description["parameters"]):  # weight, bias, weight, bias, ...
        inputs, outputs = sizes[i // 2:i // 2 + 2]
        shape = (outputs, inputs) if entry["name"].endswith(".weight") else (outputs,)
        parameters.append(torch.nn.Parameter(load(entry["name"] + ".f32", torch.float32, *shape)))
        groups.setdefault(entry["weight_decay"], []).append(parameters[-1])
    groups = [{"params": members, "weight_decay": decay} for decay, members in groups.items()]
    chosen = description["optimizer"]
    options = {"lr": chosen["learning_rate"], "fused": kind == "fused", "foreach": kind not in ("fused", "plain")}
    if chosen["name"] == "adamw":
        options |= {"betas": chosen["betas"], "eps": chosen["epsilon"]}
    optimizer = (torch.optim.SGD if chosen["name"] == "sgd" else torch.optim.AdamW)(groups, **options)

    def loss_of(parameters, x, label):
        for i in range(0, len(parameters), 2):
            x = torch.nn.functional.linear(x, parameters[i], parameters[i + 1])
            if i + 2 < len(parameters):
                x = torch.relu(x)
        return torch.nn.functional.cross_entropy(x, label)

    if kind == "whole":
        gradients_and_loss = torch.func.grad_and_value(loss_of)

        def whole():
            gradients, loss = gradients_and_loss(parameters, x, label)
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient
            optimizer.step()
            return loss.detach()

        return torch.compile(whole)
    loss_function = torch.compile(loss_of) if mode == "compile" else loss_of
    update = torch.compile(optimizer.step) if kind == "compiled" else optimizer.step

    def step():
        optimizer.zero_grad()
        loss = loss_function(parameters, x, label)
        loss.backward()
        update()
        return loss.detach()

    return step


def serve_torch(directory):
    """Answers the commands of peer.cc, each with a variant as its first argument."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    step_of = {}

    def answer_to(command, variant, steps):
        if command == "losses":
            step_of[variant] = torch_step(torch, directory, variant)
            return {"losses": [float(step_of[variant]()) for _ in range(steps)]}
        step = step_of[variant]
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(steps):
            step()
        return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}

    for line in sys.stdin:
        command, variant, steps = line.split()
        try:
            answer = answer_to(command, variant, int(steps))
        except Exception as error:  # a variant that this PyTorch or machine has not got: the others go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def busy_seconds():
    """Of all CPUs: user, nice, system, irq, softirq, steal."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Contender:
    """A process that takes steps on demand, until the end of its input."""

    def __init__(self, command, setting, threads, variant=None):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_"))}
        environment = {**kept, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1",
                       "TORCH_LOGS": "-all", **SETTINGS[setting]}
        self.setting, self.variant = setting, variant
        self.steps = 1
        self.rounds = []  # (share of the machine that others used, seconds per step)
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            fail(f"{' '.join(self.process.args)} ended with status {self.process.wait()} at {words}")
        return json.loads(answer)

    def take(self, command, steps):
        return self.ask(command, *([self.variant] if self.variant else []), steps)

    def calibrate(self, seconds):
        """Warms up and chooses the steps of a round."""
        self.steps, self.rounds = 1, []
        while (taken := self.take("time", self.steps)["seconds"]) < 0.2 * seconds:
            self.steps *= 4
        self.steps = max(1, round(self.steps * seconds / taken))

    def round(self):
        time.sleep(0.02)  # until the threads of the one before sleep
        busy, start = busy_seconds(), time.perf_counter()
        answer = self.take("time", self.steps)
        machine = (time.perf_counter() - start) * os.cpu_count()
        others = max(0.0, busy_seconds() - busy - answer["cpu_seconds"])
        self.rounds.append((others / machine, answer["seconds"] / self.steps))

    def quiet_rounds(self):
        return sum(others <= QUIET for others, _ in self.rounds)

    def median(self, least):
        kept = sorted(self.rounds)[:max(self.quiet_rounds(), least)]
        return statistics.median(seconds for _, seconds in kept)


class Comparison:
    """Of one workload."""

    def __init__(self, options, name, directory):
        self.options, self.name, self.directory = options, name, directory
        peer = Contender([PEER, name], "passive", 1)
        self.description = peer.ask("dump", directory)
        self.losses = peer.take("losses", LOSS_STEPS)["losses"]
        peer.process.communicate()
        self.worst = 0.0  # largest relative difference of a loss
        self.notes = []

    def contender(self, kind, setting, variant=None):
        command = [PEER, self.name] if kind == "gemmill" else [sys.executable, __file__, "serve", self.directory]
        return Contender(command, setting, self.description["threads"], variant)

    def start(self, contender):
        """Takes the first steps and compares their losses; False where this contender cannot run here."""
        answer = contender.take("losses", LOSS_STEPS)
        if "error" in answer:
            self.notes.append(f"{contender.variant} does not run here: {answer['error']}")
            return False
        differences = [abs(a - b) / abs(b) for a, b in zip(answer["losses"], self.losses)]
        self.worst = max(self.worst, *(d if d == d else float("inf") for d in differences))
        return True

    def fastest(self, kind, settings, variants):
        """The (setting, variant) whose best of a few short rounds is least; None where none runs."""
        best = (float("inf"), None)
        for setting in settings:
            contender = self.contender(kind, setting)
            for contender.variant in variants:
                if not self.start(contender):
                    continue
                contender.calibrate(0.3 * ROUND_SECONDS)
                for _ in range(1 if self.options.quick else 4):
                    contender.round()
                seconds = min(seconds for _, seconds in contender.rounds)
                best = min(best, (seconds, (setting, contender.variant)), key=lambda pair: pair[0])
            contender.process.communicate()
        return best[1]

    def run(self):
        chosen = {"gemmill": self.fastest("gemmill", ["spinning", "passive"], [None]),
                  "eager": self.fastest("eager", SETTINGS, EAGER),
                  "compile": self.fastest("compile", SETTINGS, COMPILE)}
        if chosen["eager"] is None:
            fail(f"PyTorch cannot run {self.name}: {'; '.join(self.notes)}")
        contenders = {kind: self.contender(kind, *choice) for kind, choice in chosen.items() if choice is not None}
        for contender in contenders.values():
            self.start(contender)
            contender.calibrate(ROUND_SECONDS)
        least, most = (3, 3) if self.options.quick else (LEAST_ROUNDS, MOST_ROUNDS)
        order = [*contenders.values()]
        for turn in range(most):
            if min(contender.quiet_rounds() for contender in order) >= least:
                break
            for contender in order[turn % len(order):] + order[:turn % len(order)]:
                contender.round()
        row = {"name": self.name, "threads": self.description["threads"], "pytorch_compile_seconds": None,
               "losses_equal": self.worst <= LOSS_TOLERANCE, "loss_difference": self.worst}
        for kind, contender in contenders.items():
            contender.process.communicate()
            prefix = kind if kind == "gemmill" else f"pytorch_{kind}"
            row[f"{prefix}_seconds"] = contender.median(least)
            row[f"{prefix}_setting"] = f"{contender.variant or prefix}: {contender.setting}"
            self.notes.append(row[f"{prefix}_setting"])
            if contender.quiet_rounds() < least:
                self.notes[-1] += " (disturbed: the machine did other work)"
        peers = [row["pytorch_eager_seconds"], row["pytorch_compile_seconds"]]
        row["ratio"] = min(filter(None, peers)) / row["gemmill_seconds"]
        row["notes"] = list(dict.fromkeys(self.notes))
        return row


def print_row(row):
    times = [row[key] for key in ("gemmill_seconds", "pytorch_eager_seconds", "pytorch_compile_seconds")]
    print(f"{row['name']:26} {row['threads']:7}", *(f"{'-' if t is None else f'{t * 1e3:.4f}':>11}" for t in times),
          f"{row['ratio']:6.2f}  {'equal' if row['losses_equal'] else 'DIFFER'} ({row['loss_difference']:.1e})")
    print(*(f"    {note}" for note in row["notes"]), sep="\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the table here, too")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether all works, no figures")
    parser.add_argument("--workload", metavar="NAME", action="append", help="only this one (may be repeated)")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        fail(f"{sys.executable} has no PyTorch: install it (pip install torch), or run a Python that has it")
    if not os.access(PEER, os.X_OK):
        fail(f"{PEER} is missing: cmake --build build --target benchmark_peer")
    names = json.loads(subprocess.run([PEER, "--list"], check=True, capture_output=True).stdout)
    rows = []
    print("workload                   threads  Gemmill ms    eager ms  compile ms  ratio  losses", flush=True)
    for name in options.workload or names:
        with tempfile.TemporaryDirectory() as directory:
            rows.append(Comparison(options, name, directory).run())
        print_row(rows[-1])
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"workloads": rows}, indent=1) + "\n")
    return 0 if all(row["losses_equal"] for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve_torch(pathlib.Path(sys.argv[2]))
    else:
        sys.exit(main())
