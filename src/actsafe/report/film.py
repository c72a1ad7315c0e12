"""An episode in motion, in CSS alone: it can be paused, it rests where motion is not wanted, and it needs no script."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from actsafe.figures import style
from actsafe.figures.coordinates import View
from actsafe.figures.panels import thinned
from actsafe.report.markup import Html, tag
from actsafe.report.svg import svg, variable

HOLD = 0.86
"""The share of a round after which the last pose is held."""
NUM_GHOSTS = 12
MOST_FRAMES, LARGEST_SIDE = 120, 128
"""Of a film of pictures; all of them lie in one picture below each other, which may be 16383 pixels high."""
MOST_BYTES, FEWEST_FRAMES = 250_000, 10
"""Of the file in bytes, and of pictures: a film that is larger and has more loses every other picture."""
_ROD = 100.0
_PLOT = (400.0, 180.0)
"""Width and height of the plot of the constrained quantity."""


def of_states(identity: str, view: View, states: Float[np.ndarray, "time state"], label: str) -> Html:
    """A rod that moves as the states say, beside a plot of the constrained quantity with a mark that goes along."""
    states = states[thinned(len(states), 200)]
    angles = -np.degrees(np.unwrap(view.rod[0].read(states)))
    bases, is_outside = _ROD * view.bases(states), view.is_outside(states)
    seconds = view.plane.decision_seconds * (len(states) - 1)
    colours = [variable(style.DANGER if outside else style.BLUE) for outside in is_outside]
    moves = {
        "cart": [f"transform:translate({base:.2f}px,0)" for base in bases],
        "rod": [f"transform:rotate({a:.2f}deg);stroke:{c};fill:{c}" for a, c in zip(angles, colours, strict=True)],
        "mark": [f"transform:translate({x:.2f}px,{y:.2f}px)" for x, y in _places(view, states)],
    }
    rules = "".join(_keyframes(f"{identity}-{name}", steps) for name, steps in moves.items())
    timing = f"{seconds / HOLD:.2f}s linear infinite"
    drawn = [_scene(identity, view, angles, bases, timing, label), _plot(identity, view, states, timing)]
    return _film(identity, tag("style", Html(rules)), *drawn)


def of_frames(identity: str, frames: UInt8[np.ndarray, "time height width 3"], rate: float | int, label: str) -> Html:
    """Pictures one after the other, `rate` of them a second."""
    seconds = len(frames) / rate
    frames = frames[thinned(len(frames), MOST_FRAMES)]
    while len(written := _strip(frames)) > MOST_BYTES and len(frames) > FEWEST_FRAMES:
        frames = frames[::2]
    count, height, width = frames.shape[:3]
    source = "data:image/webp;base64," + base64.b64encode(written).decode()
    moves = f"@keyframes {identity}-frames{{from{{background-position:0 0}}to{{background-position:0 100%}}}}"
    motion = f"animation:{identity}-frames {seconds:.2f}s steps({count},jump-none) infinite;" if count > 1 else ""
    look = f"background-image:url({source});background-size:100% {100 * count}%;aspect-ratio:{width}/{height};{motion}"
    screen = tag("div", class_="screen moving", style=look, role="img", aria_label=label)
    return _film(identity, tag("style", Html(moves)), screen)


def _strip(frames: UInt8[np.ndarray, "time height width 3"]) -> bytes:
    """All pictures below each other in one, as a file."""
    count, height, width = frames.shape[:3]
    share = min(1.0, LARGEST_SIDE / max(height, width))
    size = max(1, round(width * share)), max(1, round(height * share))
    strip = Image.new("RGB", (size[0], size[1] * count))
    for place, frame in enumerate(frames):
        strip.paste(Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS), (0, place * size[1]))
    written = io.BytesIO()
    strip.save(written, "WEBP", quality=82, method=4)
    return written.getvalue()


def _film(identity: str, *parts: Html) -> Html:
    """The parts with a box to tick that stops them, or starts them where motion is not wanted."""
    words = [tag("span", "Pause", class_="pause"), tag("span", "Play", class_="play")]
    return tag(
        "div",
        tag("input", type="checkbox", id=f"{identity}-still", class_="still"),
        tag("label", words, for_=f"{identity}-still", class_="button"),
        tag("div", *parts, class_="reel"),
        class_="film",
    )


def _keyframes(name: str, steps: Sequence[str]) -> str:
    last = len(steps) - 1
    written = (f"{100 * HOLD * place / max(last, 1):.2f}%{{{step}}}" for place, step in enumerate(steps))
    return f"@keyframes {name}{{{''.join(written)}100%{{{steps[-1]}}}}}"


def _scene(identity: str, view: View, angles: np.ndarray, bases: np.ndarray, timing: str, label: str) -> Html:
    """The rod, and faintly where it has been."""
    needed = _ROD * view.plane.rail * 1.15 + 0.6 * _ROD if view.plane.rail else 0.0
    wide = max(1.35 * _ROD, needed, float(np.max(np.abs(bases))) + 40)
    rod = [tag("line", x1=0, y1=0, x2=0, y2=_ROD, stroke_width=9, stroke_linecap="round"), tag("circle", cy=_ROD, r=11)]
    ghosts = [
        tag("g", rod[0], transform=f"translate({bases[place]:.2f} 0) rotate({angles[place]:.2f})")
        for place in thinned(len(angles), NUM_GHOSTS)
    ]
    blue = variable(style.BLUE)
    rail = None
    if view.plane.rail:
        look = {"y1": -24, "y2": 24, "stroke": variable(style.DANGER), "stroke_width": 3}
        ends = [tag("line", x1=end, x2=end, **look) for end in (-_ROD * view.plane.rail, _ROD * view.plane.rail)]
        rail = [tag("line", x1=-wide, x2=wide, y1=0, y2=0, stroke=variable(style.GREY), stroke_width=2), ends]
    cart = tag("rect", x=-22, y=-12, width=44, height=24, rx=4) if view.plane.rail else tag("circle", r=7)
    moving = tag("g", *rod, class_="moving", stroke=blue, fill=blue, style=f"animation:{identity}-rod {timing}")
    held = [moving, tag("g", cart, fill=variable(style.INK))]
    return svg(
        f"{identity}-scene",
        label,
        rail,
        tag("g", *ghosts, stroke=variable(style.GREY), opacity=0.16),
        tag("g", *held, class_="moving", style=f"animation:{identity}-cart {timing}"),
        box=(-wide, -1.3 * _ROD, 2 * wide, 2.6 * _ROD),
        class_="scene",
    )


def _places(view: View, states: np.ndarray) -> np.ndarray:
    """Where the constrained quantity is drawn, [time, 2]."""
    width, height = _PLOT
    shares = np.clip(view.rod[1].read(states) / view.span(states), -1.0, 1.0)
    return np.stack([np.linspace(0.0, width, len(states)), 0.5 * height * (1.0 - shares)], axis=1)


def _plot(identity: str, view: View, states: np.ndarray, timing: str) -> Html:
    width, height = _PLOT
    edge = 0.5 * height * view.limit / view.span(states)
    danger, small = variable(style.DANGER), {"font_size": 14, "fill": variable(style.INK)}
    limits = [0.5 * height - edge, 0.5 * height + edge]
    seconds = view.plane.decision_seconds * (len(states) - 1)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in _places(view, states) if math.isfinite(y))
    title = f"{view.rod[1].label} over {seconds:g} seconds, with its limits of ±{view.limit:g}"
    return svg(
        f"{identity}-plot",
        title,
        (
            tag("line", x1=0, x2=width, y1=y, y2=y, stroke=danger, stroke_width=2, stroke_dasharray="8 5")
            for y in limits
        ),
        tag("text", f"limit {view.limit:g}", x=width, y=limits[0] - 6, text_anchor="end", **small),
        tag("text", view.rod[1].label, x=0, y=-12, **small),
        tag("text", "0", x=0, y=height + 18, **small),
        tag("text", f"{seconds:g} s", x=width, y=height + 18, text_anchor="end", **small),
        tag("polyline", points=line, fill="none", stroke=variable(style.BLUE), stroke_width=2.5),
        tag("circle", r=7, fill=variable(style.ORANGE), class_="moving", style=f"animation:{identity}-mark {timing}"),
        box=(-8, -30, width + 16, height + 56),
        class_="plot",
    )
