"""6. BPE, WordPiece and bytes: who meets unknown tokens, and who needs more tokens?"""

from pathlib import Path

from lab import experiment

from regard.text.tokenizer_training import train_tokenizer

lab = experiment("unknown_tokens")
root = Path(__file__).resolve().parents[2]
known = (root / "README.md").read_text("utf-8").splitlines()
foreign = (root / "README.ko.md").read_text("utf-8").splitlines()
sizes, lines, lengths = lab.some([400, 800, 1600]), {}, {}
for kind in ("bpe", "wordpiece", "byte-bpe"):
    lines[kind] = []
    for size in sizes:
        tokenizer = train_tokenizer(known, kind=kind, vocab_size=size)
        ids = [one for line in foreign for one in tokenizer.encode(line, specials=False)]
        unknown = tokenizer.id_of("[UNK]")
        lines[kind].append((size, 100 * ids.count(unknown) / len(ids)))
        lengths[kind] = len(ids)
at = {kind: points[-1][1] for kind, points in lines.items()}
lab.finish(
    lines,
    "size of the vocabulary",
    "unknown tokens of a Korean text, %",
    f"Trained on English, {at['bpe']:.0f} % of the tokens of a Korean text are unknown to BPE on "
    f"characters, {at['wordpiece']:.0f} % to WordPiece (one for a whole word) and "
    f"{at['byte-bpe']:.0f} % to BPE on bytes, which needs "
    f"{lengths['byte-bpe'] / lengths['bpe']:.1f} times as many tokens.",
)
