#!/usr/bin/env python3
"""Times a Mixture-of-Experts block, forward and backward, in Gemmill and as transformers has it for Mixtral in PyTorch.

    cmake --build build --target benchmark_moe_peer
    pip install torch transformers
    python3 tests/benchmarks/compare_pytorch_moe.py [--json FILE] [--quick] [--experts N ...]

Both have the same weights and input; the output and all gradients must agree to TOLERANCE of their largest element.
Contenders are processes of their own that take turns, a round each; the table has medians. PyTorch is tried with each
way that transformers has to run experts (a loop, batched or grouped GEMMs) and, with OpenMP threads that spin or sleep
while they wait, the fastest counts. --json FILE: {"workloads": [{"name", "tokens_per_second", "pytorch_tokens_per_second",
"pytorch_implementation", "ratio", "difference"}]}. Exit status 1: results differ, or something is missing.
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

PEER = str(pathlib.Path(__file__).resolve().parents[2] / "build/tests/benchmarks/moe_peer")
TOLERANCE = 1e-4
ROUND_SECONDS = 0.5
HOPELESS = 5  # times the fastest so far: not measured further
IMPLEMENTATIONS = ["grouped_mm", "eager", "batched_mm"]
# How OpenMP threads wait. Those that spin for some time, which is the default, still fall asleep between rounds; with
# the policy "active" they would take the processors from the others.
SETTINGS = {"spinning": {}, "passive": {"OMP_WAIT_POLICY": "passive"}}


def fail(message):
    raise SystemExit(f"error: {message}")


def make_pass(directory, sizes, implementation):
    """The block's forward and backward pass, as a function that returns named tensors."""
    import torch  # pylint: disable=import-outside-toplevel
    from transformers import MixtralConfig  # pylint: disable=import-outside-toplevel
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock  # pylint: disable=import-outside-toplevel
    torch.set_flush_denormal(True)
    torch.set_num_threads(sizes["threads"])

    def load(name, *shape):
        return torch.frombuffer(bytearray((directory / f"{name}.f32").read_bytes()), dtype=torch.float32).reshape(shape).clone()

    tokens, hidden, ffn, experts = (sizes[key] for key in ("tokens", "hidden", "ffn", "experts"))
    config = MixtralConfig(hidden_size=hidden, intermediate_size=ffn, num_local_experts=experts,
                           num_experts_per_tok=sizes["top_k"], hidden_act="silu", router_jitter_noise=0.0)
    config._experts_implementation = implementation  # pylint: disable=protected-access
    block = MixtralSparseMoeBlock(config).float().train()
    fc1, fc2 = load("experts.fc1", experts, 2 * ffn, hidden), load("experts.fc2", experts, hidden, ffn)
    stacked = hasattr(block.experts, "gate_up_proj")
    if not stacked and implementation != "eager":
        raise ValueError("this transformers has only the loop")
    with torch.no_grad():
        block.gate.weight.copy_(load("router.weight", experts, hidden))
        if stacked:
            block.experts.gate_up_proj.copy_(fc1)
            block.experts.down_proj.copy_(fc2)
        else:
            for expert, gate_up, down in zip(block.experts, fc1, fc2):
                expert.w1.weight.copy_(gate_up[:ffn])
                expert.w3.weight.copy_(gate_up[ffn:])
                expert.w2.weight.copy_(down)
    x = load("x", 1, tokens, hidden).requires_grad_()
    dy = load("dy", 1, tokens, hidden)

    def run():
        block.zero_grad()
        x.grad = None
        y = block(x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(dy)
        return y

    def results():
        y = run().detach()
        if stacked:
            d_fc1, d_fc2 = block.experts.gate_up_proj.grad, block.experts.down_proj.grad
        else:
            d_fc1 = torch.stack([torch.cat([e.w1.weight.grad, e.w3.weight.grad]) for e in block.experts])
            d_fc2 = torch.stack([e.w2.weight.grad for e in block.experts])
        ours = {"y": y, "d_x": x.grad, "d_router.weight": block.gate.weight.grad, "d_experts.fc1": d_fc1,
                "d_experts.fc2": d_fc2}
        return {name: float((value - load(name, *value.shape)).abs().max() / value.abs().max())
                for name, value in ours.items()}

    return run, results


def serve(directory, sizes, implementation):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    run = results = None
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if run is None:
                run, results = make_pass(directory, sizes, implementation)
            if command == "compare":
                answer = {"differences": results()}
            else:
                start = time.perf_counter()
                for _ in range(int(words[0])):
                    run()
                answer = {"seconds": time.perf_counter() - start}
        except Exception as error:  # what this PyTorch or transformers has not got: the others go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


class Contender:
    """A process that runs passes on demand."""

    def __init__(self, command, setting, threads=None):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))}
        environment = {**kept, **({"OMP_NUM_THREADS": str(threads)} if threads else {}), **SETTINGS[setting]}
        self.runs, self.rounds = 1, []
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            fail(f"{' '.join(map(str, self.process.args))} ended with status {self.process.wait()}")
        return json.loads(answer)

    def calibrate(self, seconds):
        self.ask("time", 2)
        while (taken := self.ask("time", self.runs)["seconds"]) < 0.2 * seconds:
            self.runs *= 4
        self.runs = max(1, round(self.runs * seconds / taken))

    def round(self):
        time.sleep(0.2)  # until the threads of the one before sleep
        self.rounds.append(self.ask("time", self.runs)["seconds"] / self.runs)

    def seconds(self):
        return statistics.median(self.rounds)

    def close(self):
        self.process.communicate()


def compare(experts, rounds):
    with tempfile.TemporaryDirectory() as name:
        gemmill = {setting: Contender([PEER, str(experts)], setting) for setting in SETTINGS}
        sizes = gemmill["spinning"].ask("dump", name)
        difference, contenders, notes = 0.0, {}, []
        least = float("inf")  # seconds of a pass
        for implementation in IMPLEMENTATIONS:
            for setting in SETTINGS:
                one = Contender([sys.executable, __file__, "serve", name, json.dumps(sizes), implementation], setting,
                                sizes["threads"])
                answer = one.ask("compare")
                if "error" in answer:
                    notes.append(f"{implementation} does not run here: {answer['error']}")
                    one.close()
                    break
                difference = max(difference, *answer["differences"].values())
                seconds = one.ask("time", 1)["seconds"]
                least = min(least, seconds)
                if seconds > HOPELESS * least:
                    notes.append(f"{implementation} takes {seconds:.1f} s a pass, and is left out")
                    one.close()
                    break
                contenders[f"{implementation}, {setting}"] = one
        if not contenders:
            fail(f"PyTorch cannot run it: {'; '.join(notes)}")
        everybody = [*gemmill.values(), *contenders.values()]
        for one in everybody:
            one.calibrate(ROUND_SECONDS)
        for _ in range(rounds):
            for one in everybody:
                one.round()
        ours = min(one.seconds() for one in gemmill.values())
        fastest = min(contenders, key=lambda key: contenders[key].seconds())
        theirs = contenders[fastest].seconds()
        for one in everybody:
            one.close()
        return {"name": f"experts-{experts}", "tokens_per_second": sizes["tokens"] / ours,
                "pytorch_tokens_per_second": sizes["tokens"] / theirs, "pytorch_implementation": fastest,
                "pytorch_seconds": {key: one.seconds() for key, one in contenders.items()},
                "ratio": theirs / ours, "difference": difference, "notes": notes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the table here, too")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether all works, no figures")
    parser.add_argument("--experts", type=int, action="append", help="only this many (may be repeated); 8, 32 and 128")
    options = parser.parse_args()
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            fail(f"{sys.executable} has no {package}: pip install {package}, or run a Python that has it")
    if not os.access(PEER, os.X_OK):
        fail(f"{PEER} is missing: cmake --build build --target benchmark_moe_peer")
    print("block        Gemmill tokens/s  PyTorch tokens/s  ratio  difference  fastest in PyTorch", flush=True)
    rows = []
    for experts in options.experts or (8, 32, 128):
        row = compare(experts, 3 if options.quick else 9)
        rows.append(row)
        print(f"{row['name']:12} {row['tokens_per_second']:16.0f} {row['pytorch_tokens_per_second']:17.0f} "
              f"{row['ratio']:6.2f}  {row['difference']:.1e}     {row['pytorch_implementation']}", flush=True)
        print(*(f"    {note}" for note in row["notes"]), sep="\n", end="\n" if row["notes"] else "")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"workloads": rows}, indent=1) + "\n")
    return 0 if all(row["difference"] <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
