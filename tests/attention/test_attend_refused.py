"""Refusals of attention: one clear sentence for each kind of bad input."""

import pytest
import torch

from regard.attention.attend import attend
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
        lambda: attend(Q[:0], K, V),
        ShapeError,
        "query, key and value have shapes (0, 4), (3, 4), (3, 4); each needs at least the two axes "
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
        lambda: attend(Q, K, V, dropout=1.0),
        InputError,
        "dropout is 1.0; it must be at least 0 and less than 1.",
    ),
    (
        lambda: attend(Q, K, V, similarity="cosin"),
        UnknownNameError,
        "unknown similarity 'cosin'; the nearest is cosine. A function of (queries, keys) is "
        "also allowed.",
    ),
    (
        lambda: attend(Q, K, V, allowed=torch.ones(3, 3)),
        MaskError,
        "`allowed` is a torch.float32 tensor; give a mask such as regard.causal(), or a boolean "
        "tensor in which True means that the query may see the key.",
    ),
]


@pytest.mark.parametrize("listener", [None, Everybody()], ids=["plain", "recorded"])
@pytest.mark.parametrize(("call", "kind", "sentence"), BAD, ids=[bad[2][:50] for bad in BAD])
def test_bad_input_is_refused_in_one_sentence(call, kind, sentence, listener, no_shape_checks):
    listeners = [] if listener is None else [listener]
    with listen(*listeners), pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence
