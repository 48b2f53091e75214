"""What llama.cpp says of a model: `python run.py MODEL.gguf REQUEST.json`.

REQUEST holds `prompts` (lists of token ids), `top`, and `texts`. Prints as JSON: `rows`, per prompt the `top` most likely next tokens with their
natural log-probabilities, [[id, logprob], ...]; `ids`, the token ids of the texts. Cache and arithmetic in float32 as far as the file's
number types allow.
"""

import json
import sys
import urllib.request

import xllamacpp

model, request = sys.argv[1:]
with open(request, encoding="utf-8") as file:
    request = json.load(file)

params = xllamacpp.CommonParams()
params.model.path = model
params.n_parallel = 1
params.n_ctx = params.n_batch = 1024
# Its threads wait for each other in busy loops, which on a machine with other work takes many times as long as a single one.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = params.fit_params = False
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)


def ask(path, body):
    body = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server.listening_address + path, body, {"content-type": "application/json"})) as answer:
        return json.load(answer)


# The server is silent about a token that ends the text or begins a character: it is made to take a letter. Probabilities are those before that.
letter = ask("/tokenize", {"content": "a"})["tokens"][0]
options = {"n_predict": 1, "n_probs": request["top"], "temperature": 0, "logit_bias": [[letter, 1e6]]}
rows = []
for prompt in request["prompts"]:
    answer = ask("/completion", {"prompt": prompt, **options})
    rows.append([[entry["id"], entry["logprob"]] for entry in answer["completion_probabilities"][0]["top_logprobs"]])
ids = [ask("/tokenize", {"content": text, "parse_special": False})["tokens"] for text in request["texts"]]
print(json.dumps({"rows": rows, "ids": ids}))
