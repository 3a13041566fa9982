"""Open a model that regard has no importer for; this one is made on the spot, untrained."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PhiConfig, PhiForCausalLM, PreTrainedTokenizerFast

import regard

words = ["<pad>", "<s>", "</s>", "<unk>", "the", "dog", "sleeps", "cat", "runs"]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": len(words)}
layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "eos_token_id": 2}
torch.manual_seed(0)
phi = PhiForCausalLM(PhiConfig(**sizes, **layers, initializer_range=0.5))

model = regard.load(phi, tokenizer=fast)  # or a folder: regard.load("path/of/phi")
trace = model.trace("the dog sleeps the cat")
print(*trace, sep="\n")  # named by the model's own parts
print(trace["model.layers.1.self_attn"].weights(head=1).round(decimals=3))
edit = regard.ablate("model.layers.1.self_attn", head=1)
for edits in ([], [edit]):
    print(model.trace("the dog sleeps the cat", edits=edits).output.candidates[0])
