"""`regard doctor`: what this machine has, and proof that results do not depend on how they came."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.doctor.environment import Fact
    from regard.doctor.proofs import Proof


def doctor_command(
    model: Annotated[
        str | None,
        typer.Argument(help="A bundled model's name, or a model folder; a tiny one without."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at the machine, then prove on a model what must never change its results.

    Padding, batch size, caching, accumulation of gradients and resuming: for each the largest
    difference that was measured, and its bound. Exits with 1 if one is too large.

    Example: regard doctor en-de
    """
    from regard.doctor.environment import look_around
    from regard.doctor.proofs import examine, tiny_model
    from regard.model import load

    chosen = tiny_model() if model is None else load(model)
    facts = look_around()
    if as_json:
        proofs = list(examine(chosen))
        typer.echo(json.dumps(_plain(model, facts, proofs), ensure_ascii=False, indent=1))
    else:
        _print_facts(facts)
        name = model or "a tiny Transformer"
        typer.echo(f"\nDoes it change the results of {name}? The largest difference says:\n")
        proofs = [_printed(proof) for proof in examine(chosen)]
    failed = [proof.name for proof in proofs if not proof.holds]
    if failed:
        typer.echo(f"regard: results depend on {', '.join(failed)}, and must not.", err=True)
        raise typer.Exit(1)


def _plain(model: str | None, facts: "list[Fact]", proofs: "list[Proof]") -> dict[str, object]:
    return {
        "model": model,
        "environment": {fact.name: fact.value for fact in facts},
        "advice": {fact.name: fact.advice for fact in facts if fact.advice},
        "proofs": [
            {**vars(proof), "applies": proof.applies, "holds": proof.holds} for proof in proofs
        ],
    }


def _print_facts(facts: "list[Fact]") -> None:
    width = max(len(fact.name) for fact in facts)
    for fact in facts:
        advice = typer.style(f"  ({fact.advice})", fg="yellow") if fact.advice else ""
        typer.echo(f"{fact.name.ljust(width)}  {fact.value}{advice}")


def _printed(proof: "Proof") -> "Proof":
    """Print a proof as soon as it is there."""
    unicode = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    if not proof.applies:
        typer.echo(f"- {proof.name.ljust(13)}does not apply: {proof.measured}")
        return proof
    signs = "✓✗" if unicode else "+x"
    sign = typer.style(signs[not proof.holds], fg="green" if proof.holds else "red")
    said = f"{proof.difference:.1e} of {proof.measured}, bound {proof.bound:.0e}"
    if proof.bound == 0:
        said = f"{proof.difference:.1e} of {proof.measured}, bound 0: bit by bit"
    typer.echo(f"{sign} {proof.name.ljust(13)}{said}")
    typer.echo(f"  {' ' * 13}{proof.claim}")
    return proof
