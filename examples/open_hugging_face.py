"""Open a Hugging Face checkpoint; this one is made on the spot and has random weights."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import regard

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "sleeps"]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
named = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
special = {f"{name}_token": token for name, token in named.items()}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained("bert")
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32}
layers = {"num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=len(words), initializer_range=0.5, **sizes, **layers)
BertModel(config).save_pretrained("bert")

trace = regard.import_checkpoint("bert").trace("the dog sleeps")  # or: regard import bert -o mine
print(*trace, sep="\n")
print(trace["encoder.layers.1.self"].weights(head=1).round(decimals=3))
