"""The command ``show``: prints and draws examples, and saves their sounds."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipeline.cli.commands import no_beam_args, search_here
from beam_pipeline.cli.terminal import say
from beam_pipeline.errors import OptionError

if TYPE_CHECKING:
    from beam_pipeline.dataset.metadata import Metadata
    from beam_pipeline.inputs.sources import Input


def run_show(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.dataset.metadata import Metadata
    from beam_pipeline.dataset.rejects import lost_audio
    from beam_pipeline.read.drawing import picture_path, plot_examples
    from beam_pipeline.read.show import (
        describe_example,
        example_text,
        shown_split,
        some_examples,
        some_records,
    )

    no_beam_args("show", beam_args)
    if args.n < 1:
        raise OptionError("-n", "must be at least 1", args.n)
    heard = args.save_wav is not None
    if args.input is not None and not heard:
        raise OptionError("input", "needs `save_wav`")
    picture = None if args.plot is None else picture_path(args.plot)
    if heard:
        from beam_pipeline.read.listening import wav_folder

        wav_folder(args.save_wav)
    metadata = Metadata.load(args.records)
    split = shown_split(metadata, args.split)
    place = f" of {split}" if len(metadata.splits) > 1 else ""
    shown = args.records, metadata, args.n, split
    chosen = {"clip": args.clip, "where": args.where}
    if args.text:
        for position, record in some_records(*shown, **chosen):
            say(f"# example {position}{place}\n{example_text(record, metadata)}")
        if picture is None and not heard:
            return 0
    examples = dict(some_examples(*shown, **chosen))
    for position, example in examples.items() if not args.text else ():
        say(f"example {position}{place}\n{describe_example(example)}")
    if metadata.rejected and not args.text:
        say(f"{metadata.rejected:,} rejected{lost_audio(args.records, metadata)}")
    if picture is not None:
        left_out = plot_examples(list(examples.values()), metadata, picture)
        say(f"drawn: {picture}")
        if left_out:
            say(f"not drawn: {', '.join(left_out)}")
    if heard:
        _save_sounds(args, metadata, split, examples)
    return 0


def _save_sounds(
    args: argparse.Namespace,
    metadata: Metadata,
    split: str,
    examples: Mapping[int, Mapping[str, Any]],
) -> None:
    """Saves the sounds of examples."""
    from beam_pipeline.dataset.side_by_side import open_data_sets
    from beam_pipeline.inputs.in_memory import resolved
    from beam_pipeline.read.listening import Sounds, save_wav

    with contextlib.ExitStack() as stack:
        inputs: Sequence[Input] = ()
        if args.input is not None and metadata.recipe is not None:
            search_here()
            inputs = stack.enter_context(resolved(args.input, metadata.recipe))
        of_split = {(split, number): each for number, each in examples.items()}
        sounds = Sounds(open_data_sets(args.records), of_split, inputs)
        for number in examples:
            sound = sounds.of(split, number)
            say(f"saved: {save_wav(sound, args.save_wav)}")
