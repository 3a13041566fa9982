"""The limits of the server, in one place: routes read them, and the page gets them from the API."""

from pydantic import BaseModel


class Limits(BaseModel, frozen=True):
    """Upper bounds on requests and on the memory that the server uses."""

    body_bytes: int = 20 * 2**20
    """Size of a request body."""
    text_characters: int = 200_000
    """Length of a text or of a target."""
    texts: int = 10_000
    """Texts of one translation request."""
    edits: int = 200
    beam: int = 16
    generated_tokens: int = 2_000
    traced_tokens: int = 16_384
    """Tokens of a traced text and its target."""
    image_pixels: int = 16_000_000
    """Width times height of an image, which is checked before it is decoded."""
    connections: int = 512
    """Open connections; further ones are answered with 503."""
    idle_seconds: int = 10
    """Time after which a connection without a request is closed."""
    shutdown_seconds: int = 15
    """Time that running requests have to finish when the server is stopped."""
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
    """Jobs in the queue of one model."""
    upload_bytes: int = 128 * 2**20
    """Memory for uploaded images."""
    stored_bytes: int = 2 * 2**30
    """Memory for stored traces."""
    memory_share: float = 0.7
    """Share of the free memory that one trace may take."""


LIMITS = Limits()
