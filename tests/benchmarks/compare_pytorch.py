#!/usr/bin/env python3
"""Times whole training steps in Gemmill and in PyTorch (eager and torch.compile): same initial weights, data and numbers.

    cmake --build build --target benchmark_peer
    pip install torch     # any recent PyTorch; torch.compile needs a C++ compiler, too
    python3 tests/benchmarks/compare_pytorch.py [--json FILE] [--quick] [--no_compile] [--workload NAME ...]

Each contender is a process of its own; they take turns, a round of ROUND_SECONDS each, and wait without spinning for
their next one. The table has the medians of the rounds during which the machine did no other work (/proc/stat less what
the contender used itself), at least LEAST_ROUNDS of them; where there are not so many, of those least disturbed, and says
so. Reading data is left out on both sides. Weight decay is by parameter as in Gemmill (biases are not decayed).

PyTorch gets what is fastest for it, by trial, for each workload: AdamW fused, foreach or plain, and with torch.compile
also a compiled optimizer and a step compiled as a whole; OpenMP threads that spin or sleep while they wait; glibc's malloc
as it is or told to keep what is freed (page faults cost large steps dearly, and no other allocator is needed against
that). Denormals are flushed, as Gemmill does, and it need not read its losses. Inductor's cpp_wrapper was tried and is not
faster. Gemmill is tried with both ways to wait and needs nothing else.

--json FILE: {"workloads": [{"name", "gemmill_seconds", "pytorch_eager_seconds", "pytorch_compile_seconds" (null without),
"ratio" (the faster of the two / gemmill), "losses_equal", ...}]}. Exit status 1: losses of LOSS_STEPS steps differ by more
than LOSS_TOLERANCE relative; 2: something is missing.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUND_SECONDS = 0.3
LEAST_ROUNDS = 7
MOST_ROUNDS = 28
QUIET = 0.05  # the most that others may use of the machine during a round that counts
LOSS_STEPS = 20
LOSS_TOLERANCE = 1e-5

WAITS = {"spinning": {}, "passive": {"OMP_WAIT_POLICY": "passive"}}
MALLOCS = {
    "malloc": {},
    # 32 MiB is the most that glibc takes for blocks that are mapped (and unmapped) on their own.
    "keeping malloc": {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
                       "MALLOC_TOP_PAD_": str(64 << 20)},
}
GEMMILL_SETTINGS = WAITS
PYTORCH_SETTINGS = {f"{wait}, {malloc}": {**WAITS[wait], **MALLOCS[malloc]} for wait in WAITS for malloc in MALLOCS}
EAGER = ["eager-fused", "eager-foreach", "eager-plain"]
COMPILE = ["compile-fused", "compile-foreach", "compile-plain", "compile-compiled", "compile-whole"]


def fail(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


# The PyTorch side: answers the commands of peer.cc, each with a variant as its first argument.


class TorchTraining:
    """A workload's training with initial weights as dumped by peer.cc. variant: "eager|compile-OPTIMIZER"."""

    def __init__(self, torch, directory, variant):
        self.mode, optimizer = variant.split("-")
        description = json.loads((directory / "workload.json").read_text())
        sizes = description["sizes"]

        def load(name, dtype, *shape):
            data = bytearray((directory / name).read_bytes())
            return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()

        x = load("x.f32", torch.float32, description["batch"], sizes[0])
        label = load("label.i64", torch.int64, description["batch"])
        parameters = []
        groups = {}
        for i, entry in enumerate(description["parameters"]):
            inputs, outputs = sizes[i // 2:i // 2 + 2]
            shape = (outputs, inputs) if entry["name"].endswith(".weight") else (outputs,)
            parameter = torch.nn.Parameter(load(entry["name"] + ".f32", torch.float32, *shape))
            parameters.append(parameter)
            groups.setdefault(entry["weight_decay"], []).append(parameter)

        def loss_of(parameters, x, label):
            for i in range(0, len(parameters), 2):
                x = torch.nn.functional.linear(x, parameters[i], parameters[i + 1])
                if i + 2 < len(parameters):
                    x = torch.relu(x)
            return torch.nn.functional.cross_entropy(x, label)

        self.optimizer = self._optimizer(torch, description["optimizer"], groups, optimizer)
        update = self.optimizer.step
        if optimizer == "whole":
            gradients_of = torch.func.grad_and_value(loss_of)

            def step():
                gradients, loss = gradients_of(parameters, x, label)
                for parameter, gradient in zip(parameters, gradients):
                    parameter.grad = gradient
                update()
                return loss.detach()

            self.step = torch.compile(step)
            return
        loss_function = torch.compile(loss_of) if self.mode == "compile" else loss_of
        if optimizer == "compiled":
            update = torch.compile(update)

        def step():
            self.optimizer.zero_grad()
            loss = loss_function(parameters, x, label)
            loss.backward()
            update()
            return loss.detach()

        self.step = step

    @staticmethod
    def _optimizer(torch, description, groups, variant):
        variants = {"fused": {"fused": True}, "plain": {"foreach": False}}
        options = {"lr": description["learning_rate"], **variants.get(variant, {"foreach": True})}
        groups = [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]
        if description["name"] == "sgd":
            return torch.optim.SGD(groups, **options)
        return torch.optim.AdamW(groups, betas=tuple(description["betas"]), eps=description["epsilon"], **options)


def cpu_seconds():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def serve_torch(directory):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    trainings = {}

    def answer_to(command, variant, steps):
        if command == "losses":
            trainings[variant] = TorchTraining(torch, directory, variant)
            return {"losses": [float(trainings[variant].step()) for _ in range(steps)]}
        step = trainings[variant].step
        cpu = cpu_seconds()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - cpu}

    for line in sys.stdin:
        command, variant, steps = line.split()
        try:
            answer = answer_to(command, variant, int(steps))
        except Exception as error:  # a variant that this PyTorch or machine has not got: the others go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


# The side that asks.


class Contender:
    """A process that takes steps on demand. Close it, or leave the with block."""

    def __init__(self, command, settings, threads, variant=None):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_"))}
        environment = {**kept, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1", **settings}
        self.variant = variant
        self.steps = 1
        self.rounds = []  # (share of the machine that others used, seconds per step)
        self.process = subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            fail(f"{' '.join(map(str, self.process.args))} ended with status {self.process.wait()} at {words}")
        return json.loads(answer)

    def ask_variant(self, command, *words):
        return self.ask(command, *([self.variant] if self.variant else []), *words)

    def losses(self):
        """Of the first steps; an error's text where there are none."""
        answer = self.ask_variant("losses", LOSS_STEPS)
        return answer.get("losses", answer.get("error"))

    def calibrate(self, seconds):
        """Warms up and chooses the steps of a round."""
        self.steps = 1
        while True:
            taken = self.ask_variant("time", self.steps)["seconds"]
            if taken > 0.2 * seconds:
                self.steps = max(1, round(self.steps * seconds / taken))
                return
            self.steps *= 4

    def round(self):
        time.sleep(0.02)  # until the threads of the one before sleep
        busy = busy_seconds()
        start = time.perf_counter()
        answer = self.ask_variant("time", self.steps)
        wall = time.perf_counter() - start
        others = max(0.0, busy_seconds() - busy - answer["cpu_seconds"]) / (wall * os.cpu_count())
        self.rounds.append((others, answer["seconds"] / self.steps))

    def quiet_rounds(self):
        return sum(others <= QUIET for others, _ in self.rounds)

    def median(self, least):
        """Seconds per step, and whether rounds count that were disturbed."""
        self.rounds.sort()
        kept = max(self.quiet_rounds(), min(least, len(self.rounds)))
        return statistics.median(seconds for _, seconds in self.rounds[:kept]), kept > self.quiet_rounds()


def busy_seconds():
    """Of all CPUs: user, nice, system, irq, softirq, steal."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Comparison:
    """Of one workload."""

    def __init__(self, options, name, directory):
        self.options = options
        self.directory = pathlib.Path(directory)
        self.name = name
        with Contender([options.program, name], WAITS["passive"], threads=1) as peer:
            self.description = peer.ask("dump", directory)
            self.losses = peer.losses()
        self.threads = self.description["threads"]
        self.worst = 0.0  # largest relative difference of a loss
        self.worst_of = ""
        self.notes = []

    def gemmill(self, setting):
        return Contender([self.options.program, self.name], GEMMILL_SETTINGS[setting], self.threads)

    def pytorch(self, setting, variant=None):
        command = [sys.executable, __file__, "--serve", self.directory]
        return Contender(command, PYTORCH_SETTINGS[setting], self.threads, variant)

    def start(self, contender):
        """Takes the first steps and compares their losses; False where this contender cannot run here."""
        losses = contender.losses()
        if not isinstance(losses, list):
            self.notes.append(f"{contender.variant} does not run here: {losses}")
            return False
        difference = max(abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(losses, self.losses))
        if difference >= self.worst:
            self.worst, self.worst_of = difference, contender.variant or "gemmill"
        return True

    def try_out(self, contender):
        """The least seconds per step of a few short rounds."""
        if not self.start(contender):
            return float("inf")
        contender.calibrate(0.3 * ROUND_SECONDS)
        for _ in range(1 if self.options.quick else 4):
            contender.round()
        return min(seconds for _, seconds in contender.rounds)

    def tune(self):
        """(setting, variant) of the fastest: gemmill, eager and, unless it is left out or cannot run, compile."""
        tried = {"gemmill": {}, "eager": {}, "compile": {}}
        for setting in GEMMILL_SETTINGS:
            with self.gemmill(setting) as contender:
                tried["gemmill"][setting, None] = self.try_out(contender)

        def try_variants(kind, setting, variants):
            with self.pytorch(setting) as contender:
                for variant in variants:
                    contender.variant, contender.rounds = variant, []
                    tried[kind][setting, variant] = self.try_out(contender)

        sgd = self.description["optimizer"]["name"] == "sgd"
        compiled = [] if self.options.no_compile else COMPILE
        for setting in PYTORCH_SETTINGS:
            try_variants("eager", setting, EAGER)
            if compiled:  # the other variants only in the setting that is best for this one: compiling takes long
                try_variants("compile", setting, compiled[:1])
        if compiled:
            best = min(tried["compile"], key=tried["compile"].get)[0]
            try_variants("compile", best, compiled[1:])
        if self.options.verbose:
            for kind, times in tried.items():
                for (setting, variant), seconds in sorted(times.items(), key=lambda item: item[1]):
                    print(f"  {kind:8} {variant or '':18} {setting:26} {seconds * 1e3:10.4f} ms", flush=True)
        del sgd
        return {kind: min(times, key=times.get) for kind, times in tried.items()
                if times and min(times.values()) < float("inf")}

    def run(self):
        chosen = self.tune()
        contenders = {kind: self.gemmill(setting) if kind == "gemmill" else self.pytorch(setting, variant)
                      for kind, (setting, variant) in chosen.items()}
        least, most = (3, 3) if self.options.quick else (LEAST_ROUNDS, MOST_ROUNDS)
        for contender in contenders.values():
            self.start(contender)
            contender.calibrate(ROUND_SECONDS)
        for turn in range(most):
            if turn >= least and all(contender.quiet_rounds() >= least for contender in contenders.values()):
                break
            order = list(contenders.values())
            for contender in order[turn % len(order):] + order[:turn % len(order)]:
                contender.round()
        row = {"name": self.name, "threads": self.threads, "pytorch_compile_seconds": None, "disturbed": []}
        for kind, contender in contenders.items():
            contender.__exit__()
            prefix = kind if kind == "gemmill" else f"pytorch_{kind}"
            row[f"{prefix}_seconds"], disturbed = contender.median(least)
            row[f"{prefix}_setting"], variant = chosen[kind]
            if variant:
                row[f"{prefix}_variant"] = variant
            row["disturbed"] += [kind] if disturbed else []
        if "eager" not in contenders:
            fail(f"PyTorch cannot run {self.name}: {'; '.join(self.notes)}")
        row["ratio"] = min(row["pytorch_eager_seconds"], row["pytorch_compile_seconds"] or float("inf"))
        row["ratio"] /= row["gemmill_seconds"]
        row["losses_equal"] = self.worst <= LOSS_TOLERANCE
        row["loss_difference"] = self.worst
        row["loss_difference_of"] = self.worst_of
        return row


def print_row(row, notes):
    compiled = row["pytorch_compile_seconds"]
    print(f"{row['name']:26} {row['threads']:7} {row['gemmill_seconds'] * 1e3:11.4f} "
          f"{row['pytorch_eager_seconds'] * 1e3:11.4f} {'-' if compiled is None else f'{compiled * 1e3:.4f}':>11} "
          f"{row['ratio']:6.2f}  {'equal' if row['losses_equal'] else 'DIFFER'} ({row['loss_difference']:.1e}, "
          f"{row['loss_difference_of']})")
    print(f"    gemmill: {row['gemmill_setting']}", end="")
    for kind in ("eager", "compile"):
        if f"pytorch_{kind}_variant" in row:
            print(f"; {row[f'pytorch_{kind}_variant']}: {row[f'pytorch_{kind}_setting']}", end="")
    print()
    if row["disturbed"]:
        print(f"    the machine did other work during rounds of: {', '.join(row['disturbed'])}")
    for note in dict.fromkeys(notes):
        print(f"    {note}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the table here, too")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether all works, no figures")
    parser.add_argument("--no_compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--workload", metavar="NAME", action="append", help="only this one (may be repeated)")
    parser.add_argument("--verbose", action="store_true", help="print what every setting and variant took when tried")
    parser.add_argument("--program", metavar="FILE", default=str(ROOT / "build/tests/benchmarks/peer"),
                        help="built from peer.cc (default: %(default)s)")
    parser.add_argument("--serve", metavar="DIR", help=argparse.SUPPRESS)  # the PyTorch side
    options = parser.parse_args()
    if options.serve:
        serve_torch(pathlib.Path(options.serve))
        return 0
    if importlib.util.find_spec("torch") is None:
        fail(f"{sys.executable} has no PyTorch: install it (pip install torch), or run a Python that has it")
    if not os.access(options.program, os.X_OK):
        fail(f"{options.program} is missing: cmake --build build --target benchmark_peer, or name it with --program")
    names = json.loads(subprocess.run([options.program, "--list"], check=True, capture_output=True).stdout)
    for name in options.workload or []:
        if name not in names:
            fail(f"--workload is {name}, expected one of {', '.join(names)}")
    rows = []
    print(f"{'workload':26} {'threads':>7} {'Gemmill ms':>11} {'eager ms':>11} {'compile ms':>11} {'ratio':>6}  "
          f"losses of {LOSS_STEPS} steps", flush=True)
    for name in options.workload or names:
        with tempfile.TemporaryDirectory() as directory:
            comparison = Comparison(options, name, directory)
            rows.append(comparison.run())
        print_row(rows[-1], comparison.notes)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"workloads": rows}, indent=1) + "\n")
    if not all(row["losses_equal"] for row in rows):
        print(f"losses differ by more than {LOSS_TOLERANCE} relative", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
