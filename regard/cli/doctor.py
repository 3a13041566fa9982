"""`regard doctor`: the environment, and proofs that results do not depend on incidentals."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from regard.cli.options import JsonFlag
from regard.cli.output import cells, pad, print_json, say, warn
from regard.errors import translate

if TYPE_CHECKING:
    from regard.doctor.environment import Fact
    from regard.doctor.proofs import ChangedAnswers, Proof


def doctor_command(
    model: str | None = Argument(None, help="Name or folder of a model. Default: a tiny one."),
    reference: bool = Option(
        False, "--reference", help="Compare a Hugging Face folder with transformers instead."
    ),
    sbom: bool = Option(
        False, "--sbom", help="List all dependencies with their licenses as CycloneDX instead."
    ),
    as_json: JsonFlag = False,
) -> None:
    """Show the environment, then check that a model's results do not depend on incidentals.

    Padding, batch size, caching, threads, later tokens, files, gradient accumulation and resuming
    must not change results; traces, engines, tokenizers and exports must agree with the model. For
    each, the largest measured difference is printed with its bound. Exits with 1 if one is
    exceeded. With --reference, hidden states of every layer, attention weights and logits of a
    Hugging Face folder are compared with transformers' eager implementation instead.

    Example: regard doctor en-de
    """
    from regard.doctor.environment import describe_environment, software_bill

    if sbom:
        print_json(software_bill(), indent=1)
        return
    found = _compare(model) if reference else _examine(model)
    facts, other = describe_environment(), _precisions(None if reference else model)
    proofs: list[Proof] = []
    if as_json:
        proofs += found
        report = {
            "model": model,
            "environment": {fact.name: fact.value for fact in facts},
            "advice": {fact.name: fact.advice for fact in facts if fact.advice},
            "precisions": [vars(one) for one in other],
            "proofs": [
                {**vars(proof), "applies": proof.applies, "holds": proof.holds} for proof in proofs
            ],
        }
        print_json(report, indent=1)
    else:
        _print_facts(facts)
        name = model or "a tiny Transformer"
        typer.echo()
        if reference:
            say(f"Largest differences between {name} and transformers' eager implementation:")
        else:
            say(f"Largest differences between equivalent computations of {name}:")
        typer.echo()
        for proof in found:
            _print_proof(proof)
            proofs.append(proof)
        _print_precisions(other)
    failed = ", ".join(translate(proof.name) for proof in proofs if not proof.holds)
    if failed:
        differs = f"different from transformers: {failed}."
        warn(differs if reference else f"results depend on {failed}, but must not.")
        raise typer.Exit(1)


def _examine(model: str | None) -> Iterable["Proof"]:
    from regard.doctor.proofs import PROOFS, run_proofs, tiny_model
    from regard.doctor.reference import AGREEMENTS
    from regard.model import load

    return run_proofs(tiny_model() if model is None else load(model), (*PROOFS, *AGREEMENTS))


def _print_facts(facts: "list[Fact]") -> None:
    width = max(cells(translate(fact.name)) for fact in facts)
    for fact in facts:
        advised = translate(fact.advice)
        advice = typer.style(f"  ({advised})", fg="yellow") if advised else ""
        typer.echo(f"{pad(translate(fact.name), width)}  {translate(fact.value)}{advice}")


def _print_precisions(found: "list[ChangedAnswers]") -> None:
    for one in found:
        share = 100 * one.changed / one.of
        say(
            f"{one.precision} by {one.engine} changes {one.changed} of {one.of} answers "
            f"({share:.0f} %)"
        )


def _precisions(model: str | None) -> "list[ChangedAnswers]":
    """Return how many answers other precisions change; nothing for the tiny model."""
    from regard.doctor.proofs import compare_precisions
    from regard.errors import InputError
    from regard.model import load

    if model is None:
        return []
    try:
        return compare_precisions(load(model))
    except InputError:  # no answers, or no tokenizer
        return []


def _compare(model: str | None) -> Iterable["Proof"]:
    from regard.doctor.reference import compare_with_reference, reference_folder
    from regard.model import load

    folder = reference_folder(model)
    return compare_with_reference(load(folder), folder)


def _print_proof(proof: "Proof") -> None:
    name = pad(translate(proof.name), 16)
    if not proof.applies:
        reason = translate(f"{proof.measured}.").removesuffix(".")
        typer.echo(f"- {name}{translate(f'does not apply: {reason}')}")
        return
    unicode = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    sign = ("✓✗" if unicode else "+x")[not proof.holds]
    bound = f"bound {proof.bound:.0e}" if proof.bound else "bound 0: identical bits"
    found = translate("{0} of {1}").format(f"{proof.difference:.1e}", translate(proof.measured))
    sign = typer.style(sign, fg="green" if proof.holds else "red")
    typer.echo(f"{sign} {name}{found}, {translate(bound)}\n  {' ' * 16}{translate(proof.claim)}")
