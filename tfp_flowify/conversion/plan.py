"""Which stretches of a network are converted layer by layer, and which as one block."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence

from tfp_flowify.conversion.graph import Call, Stretch
from tfp_flowify.conversion.registry import cost_of, is_known, is_onto, known_layers, noise_of

#: What `by` may be, beside a list of names.
GRANULARITIES = ("auto", "layer", "block", "model")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch, how it is converted, and why.

    Args:
      stretch: The stretch.
      as_block: Whether it becomes one layer, with a density of what goes in given what comes out.
      why: The reason, for people.
    """

    stretch: Stretch
    as_block: bool
    why: str


def plan(stretches: list, by: str | Sequence[str]) -> list:
    """The pieces that a network is converted in.

    Args:
      stretches: All stretches of the network, as short as can be.
      by: "layer"; "block", each block ending where fewer numbers pass than anywhere before; "model"; "auto", whatever
        adds least noise; or a list of names of layers behind which to cut.
    """
    if isinstance(by, list | tuple):
        return [_block(piece, "asked for") for piece in _cut_behind(stretches, by)]
    if by not in GRANULARITIES:
        raise ValueError(f"by is one of {', '.join(map(repr, GRANULARITIES))}, or a list of names. Received: by={by!r}")
    if not stretches:
        return []
    if by == "model":
        return [_block(_joined(stretches), "asked for")]
    if by == "block":
        return [_block(piece, "it ends narrower than it begins") for piece in _narrowing(stretches)]
    if by == "layer":
        return [_by_layer(stretch) for stretch in stretches]
    return _least_noise(stretches)


def _joined(stretches) -> Stretch:
    return functools.reduce(operator.add, stretches)


def _block(stretch, why):
    return Piece(stretch, True, why)


def _by_layer(stretch):
    for place, call in enumerate(stretch.calls):
        if not is_known(call.layer):
            before = f"behind {stretch.names[place - 1]}" if place else f"on {stretch.start.shape}"
            kind = type(call.layer).__name__
            raise TypeError(
                f"There is no flow layer for {call.layer.name} ({kind}), {before}. There are some for "
                f"{', '.join(known_layers())}. Register one with @tfp_flowify.register_layer({kind}), or take it into "
                'a block: by="auto", "block" or "model".'
            )
    joining = [call.layer.name for call in stretch.calls if math.isinf(noise_of(call))]
    if joining:
        return _block(stretch, f"{', '.join(joining)} cannot be taken alone")
    return Piece(stretch, False, _noise_of_layers(stretch))


def _noise_of_layers(stretch):
    return f"layer by layer, which adds {noise_of_stretch(stretch):,.0f} dimensions of noise"


def noise_of_stretch(stretch: Stretch, of_call: Callable[[Call], float] = noise_of) -> float:
    """Dimensions of noise that a stretch adds layer by layer: of its layers, and of copies of what is used twice."""
    used = [tensor for call in stretch.calls for tensor in call.inputs]
    copies = sum(math.prod(tensor.shape[1:]) for tensor in used)
    copies -= sum(math.prod(tensor.shape[1:]) for tensor in {id(tensor): tensor for tensor in used}.values())
    return copies + sum(map(of_call, stretch.calls))


def _cut_behind(stretches, names):
    """Joins stretches up to each of some layers, and from the last of them to the end."""
    ends = {stretch.names[-1] for stretch in stretches}
    missing = [name for name in names if name not in ends]
    if missing:
        raise ValueError(
            f"A network is cut behind layers that everything passes through: {', '.join(sorted(ends))}. "
            f"Received: {', '.join(missing)}"
        )
    pieces = [[]]
    for stretch in stretches:
        pieces[-1].append(stretch)
        if stretch.names[-1] in names:
            pieces.append([])
    return [_joined(piece) for piece in pieces if piece]


def _narrowing(stretches):
    """Joins stretches until fewer numbers come out than ever before; what is left over belongs to the last."""
    least, pieces, waiting = math.prod(stretches[0].start.shape[1:]), [], []
    for stretch in stretches:
        waiting.append(stretch)
        if stretch.dimension < least:
            least = stretch.dimension
            pieces.append(_joined(waiting))
            waiting = []
    if waiting:
        pieces = [*pieces[:-1], _joined([*pieces[-1:], *waiting])]
    return pieces


def _least_noise(stretches):
    """The pieces that add least noise in all; of ways that add as much, one with least in blocks, and of few pieces.

    A block adds as many dimensions of noise as numbers come out of it. The best way to the end of each stretch is the
    best way to the start of the last piece, and that piece.
    """
    best = [((0.0, 0, 0), [])]  # What it costs to come so far, and by which pieces.
    for end, last in enumerate(stretches, 1):
        (noise, blocked, count), pieces = best[-1]
        ways = [((noise + noise_of_stretch(last, cost_of), blocked, count + 1), [*pieces, (end - 1, end, False)])]
        for start in range(end):
            (noise, blocked, count), pieces = best[start]
            changing = sum(stretch.changes_size for stretch in stretches[start:end])
            ways.append(((noise + last.dimension, blocked + changing, count + 1), [*pieces, (start, end, True)]))
        best.append(min(ways, key=lambda way: way[0]))
    return [_explained(_joined(stretches[i:j]), as_block) for i, j, as_block in best[-1][1]]


def _explained(stretch, as_block):
    if not as_block:
        return Piece(stretch, False, _noise_of_layers(stretch))
    noise, partial = noise_of_stretch(stretch), [call.layer.name for call in stretch.calls if not is_onto(call)]
    alone = "they cannot be taken one by one" if math.isinf(noise) else f"layer by layer they would add {noise:,.0f}"
    if partial and not math.isinf(noise):
        alone += f", but {', '.join(partial)} would reach a part of the space only"
    return _block(stretch, f"a block adds {stretch.dimension:,} dimensions of noise, {alone}")
