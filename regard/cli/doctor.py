"""`regard doctor`: the environment, and proofs that results do not depend on incidentals."""

import sys
from typing import TYPE_CHECKING

import typer
from typer import Argument

from regard.cli.options import JsonFlag
from regard.cli.output import print_json, warn

if TYPE_CHECKING:
    from regard.doctor.proofs import Proof


def doctor_command(
    model: str | None = Argument(None, help="Name or folder of a model. Default: a tiny one."),
    as_json: JsonFlag = False,
) -> None:
    """Show the environment, then check that a model's results do not depend on incidentals.

    Padding, batch size, caching, gradient accumulation and resuming must not change results. For
    each, the largest measured difference is printed with its bound. Exits with 1 if one is
    exceeded.

    Example: regard doctor en-de
    """
    from regard.doctor.environment import describe_environment
    from regard.doctor.proofs import run_proofs, tiny_model
    from regard.model import load

    chosen = tiny_model() if model is None else load(model)
    facts = describe_environment()
    proofs: list[Proof] = []
    if as_json:
        proofs += run_proofs(chosen)
        report = {
            "model": model,
            "environment": {fact.name: fact.value for fact in facts},
            "advice": {fact.name: fact.advice for fact in facts if fact.advice},
            "proofs": [
                {**vars(proof), "applies": proof.applies, "holds": proof.holds} for proof in proofs
            ],
        }
        print_json(report, indent=1)
    else:
        width = max(len(fact.name) for fact in facts)
        for fact in facts:
            advice = typer.style(f"  ({fact.advice})", fg="yellow") if fact.advice else ""
            typer.echo(f"{fact.name.ljust(width)}  {fact.value}{advice}")
        name = model or "a tiny Transformer"
        typer.echo(f"\nLargest differences between equivalent computations of {name}:\n")
        for proof in run_proofs(chosen):
            _print_proof(proof)
            proofs.append(proof)
    failed = [proof.name for proof in proofs if not proof.holds]
    if failed:
        warn(f"results depend on {', '.join(failed)}, but must not.")
        raise typer.Exit(1)


def _print_proof(proof: "Proof") -> None:
    if not proof.applies:
        typer.echo(f"- {proof.name.ljust(13)}does not apply: {proof.measured}")
        return
    unicode = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    sign = ("✓✗" if unicode else "+x")[not proof.holds]
    bound = f"bound {proof.bound:.0e}" if proof.bound else "bound 0: identical bits"
    typer.echo(
        f"{typer.style(sign, fg='green' if proof.holds else 'red')} {proof.name.ljust(13)}"
        f"{proof.difference:.1e} of {proof.measured}, {bound}\n  {' ' * 13}{proof.claim}"
    )
