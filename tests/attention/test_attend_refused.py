"""What attention refuses: one clear sentence for each kind of bad input."""

from math import nan

import pytest
import torch

from regard.attention.attend import attend
from regard.attention.mask import padding
from regard.attention.similarity import General
from regard.errors import InputError, MaskError, ShapeError, UnknownNameError
from regard.tap import listen
from tests.listeners import Everybody

Q = K = V = torch.eye(3, 4)


BAD = [
    (
        lambda: attend([[1.0]], Q, Q.numpy()),  # type: ignore[arg-type]
        InputError,
        "query, key and value are list, Tensor and ndarray; give torch tensors, for example "
        "torch.as_tensor(query).",
    ),
    (
        lambda: attend(Q, torch.ones(4), torch.ones(3, 4)),
        ShapeError,
        "query, key and value have shapes (3, 4), (4,), (3, 4); each needs at least the two axes "
        "(position, width), both at least 1.",
    ),
    (
        lambda: attend(Q.long(), K, V),
        InputError,
        "query, key and value are torch.int64, torch.float32 and torch.float32; give all three in "
        "one floating-point type.",
    ),
    (
        lambda: attend(Q.long(), K.long(), V.long()),
        InputError,
        "query, key and value are torch.int64, torch.int64 and torch.int64; give all three in one "
        "floating-point type.",
    ),
    (
        lambda: attend(Q, K.double(), V.half()),
        InputError,
        "query, key and value are torch.float32, torch.float64 and torch.float16; give all three "
        "in one floating-point type.",
    ),
    (
        lambda: attend(Q, K, V[:2]),
        ShapeError,
        "there are 3 keys but 2 values; each key needs its value.",
    ),
    (
        lambda: attend(Q, K[:, :3], V),
        ShapeError,
        "queries are 4 wide and keys 3, but scaled_dot compares vectors of one width: project one "
        "of them, or use similarity=regard.General(d_q, d_k).",
    ),
    (
        lambda: attend(Q, K, V, similarity=General(4, 3)),
        ShapeError,
        "queries and keys are 4 and 4 wide, but this general similarity was built for 4 and 3.",
    ),
    (
        lambda: attend(Q[:0], K, V),
        ShapeError,
        "query, key and value have shapes (0, 4), (3, 4), (3, 4); each needs at least the two axes "
        "(position, width), both at least 1.",
    ),
    (
        lambda: attend(Q, K[:0], V[:0]),
        ShapeError,
        "query, key and value have shapes (3, 4), (0, 4), (0, 4); each needs at least the two axes "
        "(position, width), both at least 1.",
    ),
    (
        lambda: attend(torch.ones(2, 3, 4), torch.ones(5, 3, 4), torch.ones(5, 3, 4)),
        ShapeError,
        "the leading axes of query, key and value are (2,), (5,) and (5,); they must be equal, or "
        "1 where they differ.",
    ),
    (
        lambda: attend(Q, K, V, temperature=-0.5),
        InputError,
        "temperature is -0.5; it must be 0 (all weight on the best key) or larger (1 leaves the "
        "scores as they are).",
    ),
    (
        lambda: attend(Q, K, V, temperature=nan),
        InputError,
        "temperature is nan; it must be 0 (all weight on the best key) or larger (1 leaves the "
        "scores as they are).",
    ),
    (
        lambda: attend(Q, K, V, temperature=torch.ones(3)),
        InputError,
        "temperature has shape (3,); give one number, or a tensor whose last axis (keys) is 1, "
        "such as (head, 1, 1) for one temperature per head.",
    ),
    (
        lambda: attend(Q, K, V, dropout=1.0),
        InputError,
        "dropout is 1.0; it must be at least 0 and less than 1.",
    ),
    (
        lambda: attend(Q, K, V, dropout=-0.1),
        InputError,
        "dropout is -0.1; it must be at least 0 and less than 1.",
    ),
    (
        lambda: attend(Q, K, V, similarity="cosin"),
        UnknownNameError,
        "there is no similarity 'cosin'; the nearest is cosine. A function of (queries, keys) is "
        "also allowed.",
    ),
    (
        lambda: attend(Q, K, V, similarity="general"),
        InputError,
        "similarity 'general' has trainable weights: build it once with regard.General(d_q, d_k) "
        "and pass that object.",
    ),
    (
        lambda: attend(Q, K, V, allowed=torch.ones(3, 3)),
        MaskError,
        "`allowed` is a torch.float32 tensor; give a mask such as regard.causal(), or a boolean "
        "tensor in which True means that the query may see the key.",
    ),
    (
        lambda: attend(Q, K, V, allowed=torch.ones(2, 3).bool()),
        MaskError,
        "the mask `allowed` has shape (2, 3), but the scores have shape (3, 3): give it the two "
        "axes (query, key) or all 2 axes, each of the scores' size or 1. Other shapes would "
        "broadcast over the wrong axes.",
    ),
    (
        lambda: attend(Q[None], K[None], V[None], allowed=padding([9])),
        MaskError,
        "padding was given a length of 9, but there are only 3 keys: a length must not exceed the "
        "number of keys.",
    ),
    (
        lambda: attend(Q, K, V, allowed="causal"),  # type: ignore[arg-type]
        MaskError,
        "`allowed` is a str; give a mask such as regard.causal(), or a boolean tensor in which "
        "True means that the query may see the key.",
    ),
]


@pytest.mark.parametrize("listener", [None, Everybody()], ids=["nobody", "everybody"])
@pytest.mark.parametrize(("call", "kind", "sentence"), BAD, ids=[bad[2][:50] for bad in BAD])
def test_bad_input_is_refused_in_one_sentence(call, kind, sentence, listener, no_shape_checks):
    listeners = [] if listener is None else [listener]
    with listen(*listeners), pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence
