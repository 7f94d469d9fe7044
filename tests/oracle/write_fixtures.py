#!/usr/bin/env python3
"""Writes the fixtures beside this file, which the tests read. Run only to change them; README.md says what they hold.

Needs torch, numpy and mpmath; the files here were made with the versions that stand in each ("made_with"). Everything is
computed in f64 from inputs that f32 holds exactly, so that the same numbers serve f32 and f64.
"""
import json
import math
import pathlib

import mpmath
import numpy
import torch
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20
torch.set_default_dtype(torch.float64)
mpmath.mp.dps = 50


def write(name, content):
    made_with = {"torch": torch.__version__.split("+")[0], "numpy": numpy.__version__, "mpmath": mpmath.__version__}
    text = json.dumps({"made_with": made_with, **content}, allow_nan=False) + "\n"
    assert len(text) < 200_000, name
    (HERE / name).write_text(text)
    print(f"{name}: {len(text)} bytes")


def tensor(value, digits=9):
    """A tensor as {"shape", "values"}; floating values with `digits` significant digits."""
    value = value.detach()
    flat = value.reshape(-1).tolist()
    if value.is_floating_point():
        flat = [float(f"{x:.{digits}g}") for x in flat]
    else:
        flat = [int(x) for x in flat]
    return {"shape": list(value.shape), "values": flat}


def exact_in_f32(value):
    return value.to(torch.float32).to(torch.float64)


def normal(generator, *shape, scale=1.0):
    return exact_in_f32(torch.randn(shape, generator=generator) * scale)


def initialize(model, generator):
    """Values of a usual size; norms near 1, so that nothing is there by default."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.copy_(exact_in_f32(1 + 0.1 * torch.randn(parameter.shape, generator=generator)))
            else:
                parameter.copy_(normal(generator, *parameter.shape, scale=0.5))


def decays(name):
    return not name.endswith("bias") and "norm" not in name


def groups(model, weight_decay):
    named = list(model.named_parameters())
    return [{"params": [p for n, p in named if decays(n)], "weight_decay": weight_decay},
            {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0}]


def train(model, initial, optimizer, loss_of):
    """The loss before each of STEPS steps from `initial`, and the parameters after them."""
    model.load_state_dict(initial)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def training_case(model, loss_of):
    """First loss and gradients of a model, then STEPS steps with AdamW and, from the start again, with SGD."""
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    loss = loss_of()
    gradients = dict(zip(initial, torch.autograd.grad(loss, list(model.parameters()))))
    adamw = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1}
    sgd = {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}
    adamw_losses, after_adamw = train(
        model, initial,
        torch.optim.AdamW(groups(model, adamw["weight_decay"]), lr=adamw["learning_rate"],
                          betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["epsilon"]), loss_of)
    sgd_losses, after_sgd = train(
        model, initial,
        torch.optim.SGD(groups(model, sgd["weight_decay"]), lr=sgd["learning_rate"], momentum=sgd["momentum"],
                        nesterov=True), loss_of)
    parameters = [{"name": name, "weight_decay": decays(name), "initial": tensor(initial[name]),
                   "gradient": tensor(gradients[name]), "after_adamw": tensor(after_adamw[name]),
                   "after_sgd": tensor(after_sgd[name])} for name in initial]
    rounded = lambda losses: [float(f"{x:.9g}") for x in losses]
    return {"loss": float(f"{loss.item():.9g}"), "parameters": parameters,
            "adamw": {**adamw, "losses": rounded(adamw_losses)}, "sgd": {**sgd, "losses": rounded(sgd_losses)}}


class Mlp(nn.Module):
    def __init__(self, sizes, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.activation = activation

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def mlps():
    sizes, batch = [6, 8, 5, 3], 7
    activations = {"gelu_erf": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
                   "relu": torch.relu, "tanh": torch.tanh, "silu": functional.silu}
    for seed, (name, activation) in enumerate(activations.items()):
        generator = torch.Generator().manual_seed(seed)
        model = Mlp(sizes, activation)
        initialize(model, generator)
        inputs = normal(generator, batch, sizes[0])
        labels = torch.randint(sizes[-1], (batch,), generator=generator)
        case = training_case(model, lambda: functional.cross_entropy(model(inputs), labels))
        write(f"mlp_{name}.json", {"activation": name, "sizes": sizes, "inputs": tensor(inputs),
                                   "labels": tensor(labels), "logits": tensor(model_logits(model, case, inputs)), **case})


def model_logits(model, case, inputs):
    state = {p["name"]: torch.tensor(p["initial"]["values"]).reshape(p["initial"]["shape"]) for p in case["parameters"]}
    model.load_state_dict(state)
    return model(inputs)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.layer_norm = nn.LayerNorm(6, eps=1e-5)
        self.hidden = nn.Linear(6, 8)
        self.dropout = nn.Dropout(0.0)
        self.rms_norm = nn.RMSNorm(8, eps=1e-6)
        self.output = nn.Linear(8, 4)

    def forward(self, tokens):
        hidden = self.dropout(functional.silu(self.hidden(self.layer_norm(self.embedding(tokens)))))
        return self.output(self.rms_norm(hidden))


def tokens_model():
    generator = torch.Generator().manual_seed(10)
    model = Tokens()
    initialize(model, generator)
    tokens = torch.randint(11, (5, 3), generator=generator)
    labels = torch.randint(4, (15,), generator=generator)
    case = training_case(model, lambda: functional.cross_entropy(model(tokens).reshape(-1, 4), labels))
    write("tokens.json", {"vocabulary": 11, "width": 6, "hidden": 8, "classes": 4, "layer_norm_epsilon": 1e-5,
                          "rms_norm_epsilon": 1e-6, "tokens": tensor(tokens), "labels": tensor(labels), **case})


class NormedMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(6, 16)
        self.norm = nn.LayerNorm(16)
        self.output = nn.Linear(16, 3)

    def forward(self, x):
        return self.output(self.norm(functional.gelu(self.input(x))))


def autocast():
    """SGD in f32 with a forward pass under autocast, whose ops differ in a few roundings from version to version."""
    generator = torch.Generator().manual_seed(50)
    model = NormedMlp()
    initialize(model, generator)
    model = model.float()
    inputs = normal(generator, 12, 6)
    labels = torch.randint(3, (12,), generator=generator)
    parameters = [{"name": name, "initial": tensor(value)} for name, value in model.state_dict().items()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(inputs.float()), labels)
        loss.backward()
        losses.append(float(f"{loss.item():.6g}"))
        optimizer.step()
    write("autocast_bf16.json", {"learning_rate": 0.2, "inputs": tensor(inputs), "labels": tensor(labels),
                                 "parameters": parameters, "losses": losses})


def losses():
    generator = torch.Generator().manual_seed(20)
    cross_entropy = []
    for ignore, smoothing in ((None, 0.0), (-100, 0.0), (2, 0.0), (None, 0.1), (-100, 0.1), (-1, 1.0)):
        logits = normal(generator, 6, 4, scale=3.0).requires_grad_()
        labels = torch.randint(4, (6,), generator=generator)
        if ignore is not None:
            labels[[1, 4]] = ignore
        index = -100 if ignore is None else ignore
        loss = functional.cross_entropy(logits, labels, ignore_index=index, label_smoothing=smoothing)
        cross_entropy.append({"logits": tensor(logits), "labels": tensor(labels), "ignore_index": index,
                              "label_smoothing": smoothing, "count": int((labels != index).sum()),
                              "loss": float(f"{loss.item():.9g}"), "gradient": tensor(torch.autograd.grad(loss, logits)[0])})
    content = {"cross_entropy": cross_entropy}
    functions = {"mse": functional.mse_loss, "l1": functional.l1_loss,
                 "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits}
    for name, function in functions.items():
        prediction = normal(generator, 4, 3, scale=2.0)
        target = normal(generator, 4, 3)
        if name.startswith("binary"):
            prediction[0] = torch.tensor([-90.0, 90.0, 40.0])
            target = exact_in_f32(torch.rand(4, 3, generator=generator).round(decimals=2))
            target[0] = torch.tensor([0.0, 1.0, 0.0])
        prediction.requires_grad_()
        loss = function(prediction, target)
        content[name] = {"prediction": tensor(prediction), "target": tensor(target), "loss": float(f"{loss.item():.9g}"),
                         "gradient": tensor(torch.autograd.grad(loss, prediction)[0])}
    write("losses.json", content)


def clipping():
    generator = torch.Generator().manual_seed(30)
    cases = []
    for max_norm in (1.0, 100.0):
        parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((3, 4), (4,), (2, 2))]
        for parameter in parameters:
            parameter.grad = normal(generator, *parameter.shape)
        before = [parameter.grad.clone() for parameter in parameters]
        norm = nn.utils.clip_grad_norm_(parameters, max_norm)
        cases.append({"max_norm": max_norm, "norm": float(f"{norm.item():.9g}"), "gradients": [tensor(g) for g in before],
                      "clipped": [tensor(parameter.grad) for parameter in parameters]})
    write("clipping.json", {"cases": cases})


def schedules():
    def rates(base, make, steps):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
        schedule = make(optimizer)
        seen = []
        for _ in range(steps):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return seen

    base, warmup, total, final = 0.01, 5, 30, 0.001
    at = torch.optim.lr_scheduler
    warmup_cosine = rates(base, lambda o: at.SequentialLR(o, [
        at.LinearLR(o, start_factor=1 / warmup, total_iters=warmup - 1),
        at.CosineAnnealingLR(o, T_max=total - warmup, eta_min=final)], milestones=[warmup]), total)
    for step, rate in enumerate(warmup_cosine):
        formula = (base * (step + 1) / warmup if step < warmup else
                   final + (base - final) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2)
        assert abs(rate - formula) < 1e-9, (step, rate, formula)
    period, factor = 7, 0.5
    step_rates = rates(base, lambda o: at.StepLR(o, step_size=period, gamma=factor), total)
    rounded = lambda seen: [float(f"{rate:.9g}") for rate in seen]
    write("schedules.json", {
        "warmup_cosine": {"learning_rate": base, "warmup_steps": warmup, "total_steps": total,
                          "final_learning_rate": final, "rates": rounded(warmup_cosine)},
        "step": {"learning_rate": base, "period": period, "factor": factor, "rates": rounded(step_rates)}})


def unary():
    """Values from mpmath: torch's f64 loses digits in the tails (its erf-GELU at -6, its softplus beyond 20)."""
    m = mpmath
    root = m.sqrt(2 / m.pi)
    functions = {  # in the order of UnaryFn
        "neg": lambda x: -x, "abs": lambda x: abs(x), "exp": m.exp, "log": m.log, "sqrt": m.sqrt,
        "rsqrt": lambda x: 1 / m.sqrt(x), "tanh": m.tanh, "sigmoid": lambda x: 1 / (1 + m.exp(-x)),
        "relu": lambda x: max(x, m.mpf(0)), "gelu_erf": lambda x: x * m.erfc(-x / m.sqrt(2)) / 2,
        "gelu_tanh": lambda x: x / (1 + m.exp(-2 * root * (x + m.mpf("0.044715") * x**3))),
        "silu": lambda x: x / (1 + m.exp(-x)), "softplus": lambda x: m.log1p(m.exp(x)), "sin": m.sin, "cos": m.cos,
        "erf": m.erf}
    everywhere = [-30, -12, -6, -5, -3.5, -2, -1, -0.75, -0.125, -2**-10, 2**-10, 0.125, 0.5, 1, 1.5, 3, 5, 6, 12, 30]
    positive = [2**-20, 2**-10, 0.125, 0.5, 0.75, 1, 1.5, 2, 3, 10, 1000, 2**20]
    torch_functions = {"neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
                       "rsqrt": torch.rsqrt, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
                       "gelu_erf": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
                       "silu": functional.silu, "softplus": functional.softplus, "sin": torch.sin, "cos": torch.cos,
                       "erf": torch.erf}
    content = []
    for name, function in functions.items():
        xs = positive if name in ("log", "sqrt", "rsqrt") else everywhere
        rows = [[float(m.diff(function, m.mpf(x), order)) if order else float(function(m.mpf(x))) for x in xs]
                for order in (0, 1, 2)]
        x = torch.tensor(xs, dtype=torch.float64, requires_grad=True)
        y = torch_functions[name](x)
        first = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
        for ours, theirs in ((rows[0], y), (rows[1], first)):
            worst = (torch.tensor(ours) - theirs.detach()).abs() / (1 + theirs.detach().abs())
            assert worst.max() < 1e-8, (name, worst)
        content.append({"fn": name, "x": xs, "value": rows[0], "first_derivative": rows[1], "second_derivative": rows[2]})
    write("unary.json", {"functions": content})


def rowwise():
    """y, the gradient dx of sum(y * dy), and the gradients of sum(dx * u) by x and by dy."""
    generator = torch.Generator().manual_seed(40)
    functions = {"softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: torch.log_softmax(x, -1),
                 "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-5),
                 "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:], eps=1e-5)}
    content = {}
    for name, function in functions.items():
        x = normal(generator, 3, 5, scale=2.0).requires_grad_()
        dy = normal(generator, 3, 5).requires_grad_()
        u = normal(generator, 3, 5)
        y = function(x)
        dx = torch.autograd.grad((y * dy).sum(), x, create_graph=True)[0]
        second_x, second_dy = torch.autograd.grad((dx * u).sum(), (x, dy))
        values = {"x": x, "dy": dy, "u": u, "y": y, "dx": dx, "second_x": second_x, "second_dy": second_dy}
        content[name] = {"epsilon": 1e-5 if "norm" in name else None,
                         **{key: tensor(value, 17) for key, value in values.items()}}
    write("rowwise.json", content)


def binary():
    generator = torch.Generator().manual_seed(50)
    differentiable = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
                      "max": torch.maximum, "min": torch.minimum}
    comparisons = {"equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
                   "greater": torch.gt, "greater_equal": torch.ge}
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((3, 1), (1,)), ((1, 2), (3, 1, 1)),
              ((0, 3), (1, 3))]
    cases = []
    for a_shape, b_shape in shapes:
        for fn, function in differentiable.items():
            a, b = normal(generator, *a_shape), normal(generator, *b_shape)
            if fn == "pow":
                a = exact_in_f32(a.abs() + 0.25)
            if fn == "div":
                b = exact_in_f32(b.sign() * (b.abs() + 0.25))
            a.requires_grad_(), b.requires_grad_()
            y = function(a, b)
            dy = normal(generator, *y.shape)
            da, db = torch.autograd.grad((y * dy).sum(), (a, b))
            values = {"a": a, "b": b, "y": y, "dy": dy, "da": da, "db": db}
            cases.append({"fn": fn, **{key: tensor(value, 17) for key, value in values.items()}})
        for fn, function in comparisons.items():  # small integers, so that equal ones occur
            a, b = (torch.randint(-1, 2, shape, generator=generator).double() for shape in (a_shape, b_shape))
            cases.append({"fn": fn, "a": tensor(a), "b": tensor(b), "y": tensor(function(a, b).to(torch.uint8))})
    write("binary.json", {"cases": cases})


if __name__ == "__main__":
    mlps()
    tokens_model()
    losses()
    clipping()
    schedules()
    unary()
    rowwise()
    binary()
    autocast()
