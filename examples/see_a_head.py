"""Print where one head of a translator looks, token by token, and draw it as a figure."""

import regard

trace = regard.load("en-de").trace("The dog is sleeping on the sofa.")
site = trace["decoder.layers.1.cross"]
print(trace.output.text)

weights = site.weights(head=4)  # target tokens × source tokens
for token, row in zip(trace.tokens["output"], weights, strict=True):
    print(f"{token.strip():>8} looks at {trace.tokens['source'][int(row.argmax())].strip()}")

trace.figure("pattern", site=site.path, head=4).save("head.svg")
