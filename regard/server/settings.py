"""The limits of the server, in one place: routes read them, and the page gets them from the API."""

from pydantic import BaseModel, ConfigDict


class Limits(BaseModel):
    """Upper bounds on requests and on the memory that the server uses."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    body_bytes: int = 20 * 2**20
    """Size of a request body."""
    text_characters: int = 200_000
    """Length of a text or of a target."""
    texts: int = 10_000
    """Texts of one translation request."""
    edits: int = 200
    """Edits of one request."""
    beam: int = 16
    """Sequences that a beam search keeps."""
    generated_tokens: int = 2_000
    """Tokens of a generated text."""
    traced_tokens: int = 16_384
    """Tokens of a traced text and its target."""
    image_pixels: int = 16_000_000
    """Width times height of an image, which is checked before it is decoded."""
    header_bytes: int = 64 * 2**10
    """Size of the first line and the headers of a request."""
    connections: int = 512
    """Open connections, of which the longest idle one is closed for a new one; and requests at
    once, beyond which answers are 503."""
    idle_seconds: int = 10
    """Time for the next request of a connection, for its headers, and for each part of its body."""
    read_seconds: int = 60
    """Time for a client to read the next part of an answer."""
    job_seconds: int = 120
    """Time that a job may run after it has left its queue."""
    shutdown_seconds: int = 15
    """Time that requests have to finish when the server is stopped."""
    candidates: int = 50
    """Next tokens or alternatives of one answer."""
    temperature: float = 100.0
    """Sampling temperature of next tokens."""
    bins: int = 2048
    """Rows and columns of a tile, and of a pooled table."""
    thumbnail: int = 256
    """Rows and columns of a thumbnail."""
    table_cells: int = 64_000_000
    """Cells of a weight table that is sent whole because it cannot be computed from vectors."""
    exact_cells: int = 4_000_000
    """Cells of a table that is compared with exact attention."""
    flow_positions: int = 1024
    """Positions of the residual stream that are sent at once."""
    lens_positions: int = 256
    """Positions at which a lens reads the residual stream at once."""
    hidden_units: int = 64
    """Hidden units of a feed-forward layer that are sent at once."""
    activation_bytes: int = 64 * 2**20
    """Size of the hidden layers that are stored with a trace; larger ones are computed again."""
    logit_bytes: int = 16 * 2**20
    """Size of the logits that are stored with a trace; of larger ones, only the last row is."""
    waiting_jobs: int = 64
    """Jobs in the queue of one model; further ones are answered with 429."""
    waiting_reads: int = 256
    """Requests that wait for data of stored traces, of all clients."""
    upload_bytes: int = 128 * 2**20
    """Memory for uploaded images."""
    stored_bytes: int = 2 * 2**30
    """Memory for stored traces."""
    memory_share: float = 0.7
    """Share of the free memory that one trace may take."""


LIMITS = Limits()
