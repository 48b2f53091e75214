"""
PyTorch as peer of the benchmark: the same decoder, trained and sampled from as PyTorch is meant to be used on a CPU. Fused query-key-value
and gate-up products, scaled_dot_product_attention, F.rms_norm, fused AdamW; sampling without autograd over a cache that is allocated once.

Engines: `torch` (eager, drawing with torch.multinomial), `torch-cdf` (sampling only: the cheaper draw from one uniform a row, as ours) and
`torch-compile` (with that draw too). Eager sampling is tried with both usual forms of the cache, and the faster one is measured.
"""

import time
from pathlib import Path

from peer import layer_names, read_config, read_spec, serve

spec, engine = read_spec()

import torch  # noqa: E402  (reads the thread settings at import)
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

torch.set_num_threads(spec["threads"])
torch.set_num_interop_threads(1)
config = read_config(spec)
D, H, K, DH = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
EPS = config["rms_norm_eps"]


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        tensors = load_file(Path(spec["model"]) / "model.safetensors")
        parameter = lambda names: torch.nn.Parameter(torch.cat([tensors[name] for name in names]).float())  # noqa: E731
        self.embed = parameter(["model.embed_tokens.weight"])
        self.norm = parameter(["model.norm.weight"])
        self.layers = torch.nn.ModuleList(
            torch.nn.ParameterDict({short: parameter(names) for short, names in layer.items()}) for layer in layer_names(config)
        )
        positions = torch.arange(max(spec["length"], 1), dtype=torch.float64)
        frequencies = config["rope_theta"] ** (-torch.arange(0, DH, 2, dtype=torch.float64) / DH)
        angles = torch.outer(positions, frequencies)
        self.register_buffer("cos", torch.cat([angles.cos(), angles.cos()], 1).float())
        # The minus sign of rotate_half lies in the table, so that a rotation is one concatenation, two products and a sum.
        self.register_buffer("sin", torch.cat([-angles.sin(), angles.sin()], 1).float())

    def heads(self, layer, x, cos, sin):
        """Rotated queries [B,H,T,Dh], rotated keys and plain values [B,K,T,Dh] of x [B,T,D]."""
        B, T, _ = x.shape
        qkv = F.linear(F.rms_norm(x, (D,), layer["attn_norm"], EPS), layer["qkv"])
        q, k, v = qkv.view(B, T, H + 2 * K, DH).transpose(1, 2).split([H, K, K], 1)
        if "q_norm" in layer:
            q, k = F.rms_norm(q, (DH,), layer["q_norm"], EPS), F.rms_norm(k, (DH,), layer["k_norm"], EPS)
        return rope(q, cos, sin), rope(k, cos, sin), v

    def rest(self, layer, x, mixed):
        """The layer behind the attention: x [B,T,D], mixed [B,H,T,Dh]."""
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), layer["o"])
        gate, up = F.linear(F.rms_norm(x, (D,), layer["mlp_norm"], EPS), layer["gate_up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer["down"])

    def hidden(self, tokens):
        """[B,T,D] behind the last norm, of whole sequences [B,T]."""
        x = F.embedding(tokens, self.embed)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            q, k, v = self.heads(layer, x, cos, sin)
            x = self.rest(layer, x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K))
        return F.rms_norm(x, (D,), self.norm, EPS)


def rope(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([second, first], -1) * sin


def train():
    model = Decoder()
    tokens = torch.tensor(spec["tokens"]).view(spec["rows"], spec["length"])
    targets = tokens[:, 1:].flatten()
    adam = spec["adam"]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": adam["weightDecay"]}, {"params": plain, "weight_decay": 0.0}],
        **{"lr": adam["learningRate"], "betas": (adam["beta1"], adam["beta2"]), "eps": adam["epsilon"], "fused": True},
    )

    def loss_of():
        logits = F.linear(model.hidden(tokens)[:, :-1], model.embed)
        return F.cross_entropy(logits.flatten(0, 1), targets)

    if engine == "torch-compile":
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), adam["maxGradientNorm"], foreach=True)
        optimizer.step()
        return loss.item(), norm.item()

    losses, norms = zip(*(step() for _ in range(spec["checkedSteps"])))

    def measured_round():
        seconds = []
        for _ in range(spec["steps"]):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds}

    return {"losses": losses, "gradientNorms": norms, "versions": versions()}, measured_round


def attend_one(query, keys, values, mask):
    """Attention of one token, query [B,H,1,Dh], by plain products: faster here than the fused kernel, which is made for many queries."""
    scores = (query * DH**-0.5).view(-1, K, H // K, DH) @ keys.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return (scores.softmax(-1) @ values).view(query.shape)


class Sampler:
    """Decoding over a cache [rows, K, length, Dh] per layer. `growing`: attention reads what is filled; else all of it, under a mask."""

    def __init__(self, model, growing):
        self.model, self.growing = model, growing
        shape = (spec["rows"], K, spec["length"], DH)
        self.keys = [torch.zeros(shape) for _ in model.layers]
        self.values = [torch.zeros(shape) for _ in model.layers]
        self.range = torch.arange(spec["length"])

    def prompt(self, tokens):
        """Logits [B,V] behind the prompts [B,T], whose keys and values fill the cache."""
        model, T = self.model, tokens.shape[1]
        x = F.embedding(tokens, model.embed)
        for i, layer in enumerate(model.layers):
            q, k, v = model.heads(layer, x, model.cos[:T], model.sin[:T])
            self.keys[i][:, :, :T], self.values[i][:, :, :T] = k, v
            x = model.rest(layer, x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K))
        return F.linear(F.rms_norm(x[:, -1], (D,), model.norm, EPS), model.embed)

    def extend(self, token, position):
        """Logits [B,V] behind one more token [B,1] at `position`: a number for the growing form, a tensor [1] for the other."""
        model = self.model
        x = F.embedding(token, model.embed)
        cos, sin = model.cos[position], model.sin[position]
        mask = None if self.growing else self.range > position
        for i, layer in enumerate(model.layers):
            q, k, v = model.heads(layer, x, cos, sin)
            if self.growing:
                self.keys[i][:, :, position], self.values[i][:, :, position] = k[:, :, 0], v[:, :, 0]
                keys, values = self.keys[i][:, :, : position + 1], self.values[i][:, :, : position + 1]
            else:
                keys, values = self.keys[i].index_copy_(2, position, k), self.values[i].index_copy_(2, position, v)
            x = model.rest(layer, x, attend_one(q, keys, values, mask))
        return F.linear(F.rms_norm(x[:, -1], (D,), model.norm, EPS), model.embed)


def multinomial(probabilities):
    return torch.multinomial(probabilities, 1)


def inverse_cdf(probabilities):
    """One uniform a row, where torch.multinomial draws one a token of the vocabulary."""
    sums = probabilities.cumsum(-1)
    drawn = torch.searchsorted(sums, torch.rand(len(sums), 1) * sums[:, -1:], right=True)
    return drawn.clamp_(max=sums.shape[1] - 1)


@torch.inference_mode()
def sample(sampler, draw, prompts):
    """All rows' new tokens, drawn at temperature 1, with their log-probabilities, as lists, and the seconds that it took."""
    started = time.perf_counter()
    tokens, logprobs = [], []

    def take(logits):
        all_logprobs = F.log_softmax(logits, -1)
        tokens.append(draw(all_logprobs.exp()))
        logprobs.append(all_logprobs.gather(1, tokens[-1]))
        return tokens[-1]

    token = take(sampler.prompt(prompts))
    for position in range(prompts.shape[1], spec["length"] - 1):
        token = take(sampler.extend(token, position if sampler.growing else torch.tensor([position])))
    drawn = torch.cat(tokens, 1).tolist(), torch.cat(logprobs, 1).tolist()
    return *drawn, time.perf_counter() - started


def sampling():
    model = Decoder().requires_grad_(False)
    torch.manual_seed(spec["seed"])
    prompts = torch.tensor(spec["tokens"]).view(spec["rows"], -1)
    whole = Sampler(model, growing=False)
    caches = {"whole cache under a mask": whole}
    if engine == "torch-compile":
        whole.extend = torch.compile(whole.extend, dynamic=False)
    else:
        caches["growing slices"] = Sampler(model, growing=True)
    draw = multinomial if engine == "torch" else inverse_cdf
    seconds = {}
    for name, sampler in caches.items():
        sample(sampler, draw, prompts)
        seconds[name] = min(sample(sampler, draw, prompts)[2] for _ in range(2))
    best = min(seconds, key=seconds.get)
    tokens, logprobs, _ = sample(caches[best], draw, prompts)

    def measured_round():
        return {"seconds": [sample(caches[best], draw, prompts)[2]]}

    return {"tokens": tokens, "logprobs": logprobs, "variant": best, "variants": seconds, "versions": versions()}, measured_round


def versions():
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


serve(train if spec["workload"] == "training" else sampling)
