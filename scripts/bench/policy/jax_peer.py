"""
JAX as peer of the benchmark: the same decoder, one jitted function for a whole optimizer step (weights and moments donated) and one for a
whole batch of turns (prompt pass, then lax.scan over a cache of fixed length).
"""

import os
import time
from functools import partial
from pathlib import Path

from peer import layer_names, read_config, read_spec, serve

spec, _ = read_spec()
# XLA takes as many threads as there are processors that it may run on.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: spec["threads"]])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

config = read_config(spec)
D, H, K, DH = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
G = H // K
EPS = config["rms_norm_eps"]
LENGTH = spec["length"]


def load():
    """Matrices are turned to [in,out], as `x @ w` wants them."""
    tensors = load_file(Path(spec["model"]) / "model.safetensors")

    def parameter(names):
        joined = np.concatenate([tensors[name].astype(np.float32) for name in names])
        return jnp.asarray(joined.T if joined.ndim == 2 else joined)

    return {
        "embed": jnp.asarray(tensors["model.embed_tokens.weight"].astype(np.float32)),
        "norm": parameter(["model.norm.weight"]),
        "layers": [{short: parameter(names) for short, names in layer.items()} for layer in layer_names(config)],
    }


angles = np.outer(np.arange(LENGTH), config["rope_theta"] ** (-np.arange(0, DH, 2) / DH))
COS = np.concatenate([np.cos(angles)] * 2, 1).astype(np.float32)
# The minus sign of rotate_half lies in the table.
SIN = np.concatenate([-np.sin(angles), np.sin(angles)], 1).astype(np.float32)


def rms_norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + EPS) * weight


def rope(x, cos, sin):
    first, second = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([second, first], -1) * sin


def heads(layer, x, cos, sin):
    """Rotated and scaled queries [B,H,T,Dh], rotated keys and plain values [B,K,T,Dh] of x [B,T,D]."""
    B, T, _ = x.shape
    qkv = (rms_norm(x, layer["attn_norm"]) @ layer["qkv"]).reshape(B, T, H + 2 * K, DH).transpose(0, 2, 1, 3)
    q, k, v = jnp.split(qkv, [H, H + K], 1)
    if "q_norm" in layer:
        q, k = rms_norm(q, layer["q_norm"]), rms_norm(k, layer["k_norm"])
    return rope(q, cos, sin) * DH**-0.5, rope(k, cos, sin), v


def attention(q, keys, values, visible):
    """[B,H,T,Dh] of q [B,H,T,Dh] over keys and values [B,K,S,Dh]; `visible` [T,S]."""
    B, _, T, _ = q.shape
    scores = jnp.einsum("bkgtd,bksd->bkgts", q.reshape(B, K, G, T, DH), keys)
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), -1)
    return jnp.einsum("bkgts,bksd->bkgtd", weights, values).reshape(B, H, T, DH)


def rest(layer, x, mixed):
    """The layer behind the attention: x [B,T,D], mixed [B,H,T,Dh]."""
    B, T, _ = x.shape
    x = x + mixed.transpose(0, 2, 1, 3).reshape(B, T, H * DH) @ layer["o"]
    gate, up = jnp.split(rms_norm(x, layer["mlp_norm"]) @ layer["gate_up"], 2, -1)
    return x + (jax.nn.silu(gate) * up) @ layer["down"]


def causal(length):
    return np.tril(np.ones((length, length), bool))


def loss_of(params, tokens):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        q, k, v = heads(layer, x, COS, SIN)
        x = rest(layer, x, attention(q, k, v, causal(LENGTH)))
    logits = rms_norm(x[:, :-1], params["norm"]) @ params["embed"].T
    logprobs = jax.nn.log_softmax(logits, -1)
    return -jnp.mean(jnp.take_along_axis(logprobs, tokens[:, 1:, None], -1))


@partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(params, first, second, step, tokens):
    adam = spec["adam"]
    loss, gradients = jax.value_and_grad(loss_of)(params, tokens)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients)))
    factor = jnp.minimum(1.0, adam["maxGradientNorm"] / (norm + 1e-6))

    def update(p, m, v, g):
        g = g * factor
        m = adam["beta1"] * m + (1 - adam["beta1"]) * g
        v = adam["beta2"] * v + (1 - adam["beta2"]) * jnp.square(g)
        change = m / (1 - adam["beta1"] ** step) / (jnp.sqrt(v / (1 - adam["beta2"] ** step)) + adam["epsilon"])
        decay = adam["weightDecay"] if p.ndim >= 2 else 0.0
        return p - adam["learningRate"] * (change + decay * p), m, v

    updated = jax.tree.map(update, params, first, second, gradients)
    return *(jax.tree.map(lambda triple, i=i: triple[i], updated, is_leaf=lambda x: isinstance(x, tuple)) for i in range(3)), loss, norm


def training():
    tokens = jnp.asarray(np.array(spec["tokens"], np.int32).reshape(spec["rows"], LENGTH))
    params = load()
    state = [params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), 0]

    def step():
        state[3] += 1
        *state[:3], loss, norm = train_step(*state[:3], jnp.float32(state[3]), tokens)
        return float(loss), float(norm)

    losses, norms = zip(*(step() for _ in range(spec["checkedSteps"])))

    def measured_round():
        seconds = []
        for _ in range(spec["steps"]):
            started = time.perf_counter()
            step()
            jax.block_until_ready(state[0])
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds}

    return {"losses": losses, "gradientNorms": norms, "versions": {"jax": jax.__version__}}, measured_round


def inverse_cdf(key, logprobs):
    sums = jnp.cumsum(jnp.exp(logprobs), -1)
    uniforms = jax.random.uniform(key, (len(logprobs), 1))
    return jnp.minimum(jnp.sum(sums <= uniforms * sums[:, -1:], -1), logprobs.shape[1] - 1)


@partial(jax.jit, static_argnums=3)
def sample(params, prompts, key, draw):
    """New tokens [B,N] drawn at temperature 1, and their log-probabilities."""
    B, T = prompts.shape
    cache = []

    def take(x, key):
        logprobs = jax.nn.log_softmax(rms_norm(x[:, -1], params["norm"]) @ params["embed"].T, -1)
        token = draw(key, logprobs).astype(jnp.int32)
        return token, jnp.take_along_axis(logprobs, token[:, None], 1)[:, 0]

    x = params["embed"][prompts]
    for layer in params["layers"]:
        q, k, v = heads(layer, x, COS[:T], SIN[:T])
        room = [(0, 0), (0, 0), (0, LENGTH - T), (0, 0)]
        cache.append((jnp.pad(k, room), jnp.pad(v, room)))
        x = rest(layer, x, attention(q, k, v, causal(T)))
    keys = jax.random.split(key, LENGTH - T)
    first = take(x, keys[0])

    def extend(carry, step):
        token, cache = carry
        position, key = step
        x = params["embed"][token][:, None]
        cos, sin = (jax.lax.dynamic_slice_in_dim(table, position, 1) for table in (COS, SIN))
        grown = []
        for layer, (all_keys, all_values) in zip(params["layers"], cache):
            q, k, v = heads(layer, x, cos, sin)
            all_keys = jax.lax.dynamic_update_slice_in_dim(all_keys, k, position, 2)
            all_values = jax.lax.dynamic_update_slice_in_dim(all_values, v, position, 2)
            grown.append((all_keys, all_values))
            x = rest(layer, x, attention(q, all_keys, all_values, jnp.arange(LENGTH) <= position))
        drawn = take(x, key)
        return (drawn[0], grown), drawn

    _, later = jax.lax.scan(extend, (first[0], cache), (jnp.arange(T, LENGTH - 1), keys[1:]))
    return tuple(jnp.concatenate([a[:, None], b.T], 1) for a, b in zip(first, later))


def sampling():
    params = load()
    prompts = jnp.asarray(np.array(spec["tokens"], np.int32).reshape(spec["rows"], -1))
    calls = iter(range(1_000_000))
    draws = {"categorical": jax.random.categorical, "inverse_cdf": inverse_cdf}

    def run(name):
        started = time.perf_counter()
        tokens, logprobs = sample(params, prompts, jax.random.key(spec["seed"] + next(calls)), draws[name])
        return tokens.tolist(), logprobs.tolist(), time.perf_counter() - started

    seconds = {}
    for name in draws:
        run(name)
        seconds[name] = min(run(name)[2] for _ in range(2))
    best = min(seconds, key=seconds.get)
    tokens, logprobs, _ = run(best)

    def measured_round():
        return {"seconds": [run(best)[2]]}

    return {"tokens": tokens, "logprobs": logprobs, "variant": best, "variants": seconds, "versions": {"jax": jax.__version__}}, measured_round


serve(training if spec["workload"] == "training" else sampling)
