"""Token ids by Hugging Face's own tokenizers: `python reference.py REQUEST.json DIRECTORY`.

REQUEST holds `texts`, `files` (paths of tokenizer.json), `trained` (tokenizers to be trained here on the texts: their tokenizer.json without
a vocabulary; they are written to DIRECTORY) and `alphabet`, the byte alphabet. Prints [{file, texts, plain, marked}, ...] with further texts that
hold the file's added tokens, and their token ids where text never becomes an added token, and where it does.
"""

import json
import sys

from tokenizers import AddedToken, Tokenizer, trainers

with open(sys.argv[1], encoding="utf-8") as file:
    request = json.load(file)
files = list(request["files"])
MARKERS = ["<|start|>", "<|end|>", "<|en", "[INST]"]

for number, frame in enumerate(request["trained"]):
    fallback = frame["model"].get("byte_fallback", False)
    tokenizer = Tokenizer.from_str(json.dumps({**frame, "model": {**frame["model"], "vocab": {}, "merges": []}}))
    if fallback:
        # Not every character gets a token, so that some fall back to bytes.
        options = {"special_tokens": [f"<0x{byte:02X}>" for byte in range(256)], "limit_alphabet": 90}
    else:
        options = {"initial_alphabet": request["alphabet"]}
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, **options)
    tokenizer.train_from_iterator(request["texts"], trainer)
    content = json.loads(tokenizer.to_str())
    # The byte tokens are ordinary tokens of the vocabulary in such files.
    content["added_tokens"] = []
    content["model"]["byte_fallback"] = fallback
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in MARKERS])
    files.append(f"{sys.argv[2]}/trained-{number}.json")
    tokenizer.save(files[-1])


def ids(tokenizer, texts):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


answers = []
for file in files:
    with open(file, encoding="utf-8") as opened:
        content = json.load(opened)
    added = {token["content"] for token in content["added_tokens"]}
    bare = {**content, "added_tokens": [], "model": {**content["model"]}}
    bare["model"]["vocab"] = {token: i for token, i in content["model"]["vocab"].items() if token not in added}
    texts = request["texts"] + ["".join(f"{text} {marker}\n{text}{marker}" for marker in sorted(added)[:20]) for text in request["texts"][:6]]
    plain, marked = Tokenizer.from_str(json.dumps(bare)), Tokenizer.from_str(json.dumps(content))
    answers.append({"file": file, "texts": texts, "plain": ids(plain, texts), "marked": ids(marked, texts)})
print(json.dumps(answers))
