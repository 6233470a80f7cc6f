"""`hnclip report`: one page about runs, with their pictures, that opens from disk."""

import contextlib
import pathlib
from collections.abc import Sequence

from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis.report import (
    cosines,
    curves,
    document,
    folder,
    galleries,
    pictures,
    provenance,
    results,
    settings,
)
from hnclip_jax.commands import (
    embedding,
    report_looking,
    report_origins,
    report_results,
    run_folders,
    sources,
)
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.training import logging

EXAMPLE = "hnclip report runs/plain runs/hn --out=report"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    flags.DEFINE_string("out", None, "folder of the page, made if need be", flag_values=values)
    flags.DEFINE_boolean(
        "overwrite", False, "an older report in that folder may go", flag_values=values
    )
    flags.DEFINE_boolean(
        "embed",
        True,
        "embed the test list by the runs' weights, for geometry and galleries; --noembed leaves "
        "these out",
        flag_values=values,
    )
    flags.DEFINE_string(
        "data",
        "",
        "the list for these; empty = the one that the runs were tested on",
        flag_values=values,
    )
    for name, default, what in (
        ("pictures", 500, "most pictures in the galleries"),
        ("thumbnail", 224, "most pixels on a side of these"),
    ):
        flags.DEFINE_integer(name, default, what, lower_bound=1, flag_values=values)
    sources.define_flags(values, data=False)
    embedding.define_vocabulary(values)
    embedding.define_compute_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Writes the page; prints where it is and how large."""
    if not arguments or not values.out:
        raise types.UserError(f"needs run folders and --out; for example: {EXAMPLE}")
    needless = [name for name in ("data", "pictures", "thumbnail") if values[name].present]
    if needless and not values.embed:
        raise types.UserError(f"--{needless[0]} does not go with --noembed; leave one of them out")
    out = pathlib.Path(values.out).expanduser()
    folder.check_target(out, values.overwrite)
    runs = [run_folders.read(path) for path in arguments]
    names = _names(runs)
    # The folder comes first: where it cannot be, nothing is computed.
    with folder.new(out, overwrite=values.overwrite) as draft:
        sections = _sections(values, arguments, runs, names, draft)
        summary = f"{len(runs)} run{'s' * (len(runs) > 1)}, {report_origins.now()}."
        page = document.page(f"Report on {', '.join(names)}", summary, sections)
        with folder.told(out):
            (draft / folder.PAGE).write_text(page, "utf-8")
            size = folder.size(draft)
    print(f"{out / folder.PAGE}  {size / 1e6:.1f} MB")


def _sections(
    values: flags.FlagValues,
    arguments: Sequence[str],
    runs: Sequence[run_folders.Run],
    names: Sequence[str],
    draft: pathlib.Path,
) -> list[document.Section]:
    """Returns the sections in their order; what takes long comes after what may be mistaken."""
    named = list(zip(runs, names, strict=True))
    histories = [run.history(name) for run, name in named]
    found = results.render(report_results.by_list(runs, names))
    drawn, differing = curves.render(histories), settings.render(histories)
    origins = [report_origins.run(run, name) for run, name in named]
    looked = report_looking.look(values, runs, names) if values.embed else None
    page = report_origins.page(values, arguments, looked.pictures if looked else None)
    return [
        document.Section("results", "Results", found),
        document.Section("curves", "Curves", drawn),
        *(_looked(values, looked, draft) if looked else ()),
        document.Section("settings", "Settings", differing),
        document.Section("provenance", "Provenance", provenance.render([page, *origins])),
    ]


def _looked(
    values: flags.FlagValues, looked: report_looking.Looked, draft: pathlib.Path
) -> list[document.Section]:
    """Returns the sections on geometry and galleries; writes the pictures of these."""
    shown = galleries.fit(looked.galleries, values.pictures)
    wanted = {number: looked.pictures.records[number].image for number in galleries.records(shown)}
    with contextlib.closing(logging.Progress("writing pictures", "picture")) as progress:
        copies = pictures.write(
            wanted, draft, values.thumbnail, pictures_lib.options(values), progress
        )
    return [
        document.Section("geometry", "Geometry", cosines.render(looked.measured, looked.notes)),
        document.Section("galleries", "Galleries", galleries.render(shown, copies)),
    ]


def _names(runs: Sequence[run_folders.Run]) -> list[str]:
    """Returns the shortest ends of the folders' paths that tell them apart."""
    paths = [run.path for run in runs]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise types.UserError(f"{twice} is named twice; name each run once")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]
