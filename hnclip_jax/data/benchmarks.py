"""The registry of protocols: which pictures, which captions, how many; loaded from what users have.

A benchmark's name stands in a result only when the whole benchmark was measured: `load` withholds
it from a list of another size, and from one of which anything was skipped.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable

from hnclip_jax import types
from hnclip_jax.data import downloads, lists, pack, survey


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A protocol.

    what: one sentence.
    pictures: in the gallery; several where several are in use.
    captions: likewise.
    field: where the captions stand in the download.
    sources: what it can be loaded from.
    reference: who defined it.
    find: (source, progress) -> its rows.
    queries: pictures (with their captions) that ask; 0 = all.
    same_as: another name for that protocol.
    """

    what: str
    pictures: tuple[int, ...]
    captions: tuple[int, ...]
    field: str
    sources: str
    reference: str
    find: Callable[[str, downloads.Progress], downloads.Found]
    queries: int = 0
    same_as: str = ""


_DOCCI = functools.partial(
    downloads.of_list, names=("docci_descriptions.jsonlines",), pictures=("images",)
)
_KARPATHY = functools.partial(downloads.of_list, splits=("test",))

_DOCCI_FOLDER = "docci/ (docci_descriptions.jsonlines, images/)"
_DCI_FOLDER = "densely_captioned_images/ (annotations/ or complete/, photos/)"
_TWO_LISTS = "DCI_train_del_org.json,DCI_test.json, or the folder with both"
_GOAL = "GOAL, arXiv 2503.17782"
_LONG_CLIP = "Long-CLIP, arXiv 2403.15378"

_LONG_DCI = Benchmark(
    "Long-DCI of TULIP: all of DCI that has an extra caption",
    (7_602,), (7_602,), "extra_caption",
    f"{_DCI_FOLDER}; dci_long.csv",
    "TULIP, arXiv 2410.10034",
    functools.partial(downloads.of_dci, recipe="extra", names=("dci_long.csv",)),
)  # fmt: skip

REGISTRY = {
    "docci_goal": Benchmark(
        "DOCCI qual_test and then test: the list that GOAL and HN-CLIP use",
        (5_100,), (5_100,), "description",
        f"{_DOCCI_FOLDER}; docci_test.json",
        _GOAL,
        functools.partial(
            _DOCCI,
            names=("docci_descriptions.jsonlines", "docci_test.json"),
            splits=("qual_test", "test"),
        ),
    ),
    "docci_test": Benchmark(
        "DOCCI test, the official split",
        (5_000,), (5_000,), "description",
        _DOCCI_FOLDER,
        "DOCCI, arXiv 2404.19753",
        functools.partial(_DOCCI, splits=("test",)),
    ),
    "dci_goal": Benchmark(
        "GOAL's own sample of DCI, which the official splits do not know: its list defines it",
        (1_999,), (1_999,), "extra_caption",
        "DCI_test.json, or its folder",
        _GOAL,
        functools.partial(
            downloads.of_list, names=downloads.TEST_LISTS, pictures=downloads.PHOTOS
        ),
    ),
    "dci_extra_all": dataclasses.replace(_LONG_DCI, same_as="long_dci_tulip"),
    "dci_short_extra": Benchmark(
        "all of DCI, short and extra caption, a line each",
        (7_805,), (7_805,), "short_caption, extra_caption",
        _DCI_FOLDER,
        "DCI, arXiv 2312.08578",
        functools.partial(downloads.of_dci, recipe="short_extra", names=()),
    ),
    "long_dci_tulip": _LONG_DCI,
    "long_dci_hn": Benchmark(
        "Long-DCI of HN-CLIP: GOAL's training and test list of DCI, so it holds the training pairs",
        (7_444,), (7_444,), "extra_caption",
        _TWO_LISTS,
        "HN-CLIP, arXiv 2608.18521",
        functools.partial(downloads.of_two_lists, test_asks=False),
    ),
    "long_dci_holdout": Benchmark(
        "the gallery of Long-DCI, asked only by the test pairs: what training has not seen",
        (7_444, 7_602), (7_444, 7_602), "extra_caption",
        f"{_TWO_LISTS}; or dci_long.csv,DCI_test.json",
        "this project",
        functools.partial(downloads.of_two_lists, test_asks=True),
        queries=1_999,
    ),
    "urban1k": Benchmark(
        "Urban-1K: pictures of streets that look alike",
        (1_000,), (1_000,), "first line of caption/<n>.txt",
        "Urban1k/ (image/, caption/); urban_dataset_test.json",
        _LONG_CLIP,
        downloads.of_urban,
    ),
    "sv1k": Benchmark(
        "the first 1,000 records of ShareGPT4V, which Long-CLIP does not train on",
        (1_000,), (1_000,), "conversations[1].value",
        "share-captioner_coco_lcs_sam_1246k_1107.json, or its folder (sam/images/)",
        _LONG_CLIP,
        functools.partial(
            downloads.of_list,
            names=("share-captioner_coco_lcs_sam_1246k_1107.json", "sharegpt4v_test.json"),
            pictures=("sam/images", "data/sam/images"),
            first=1_000,
        ),
    ),
    "coco_val2017_5k": Benchmark(
        "COCO val2017 by ascending id, the first five captions of each picture",
        (5_000,), (25_000,), "caption",
        "coco/ (annotations/captions_val2017.json, val2017/)",
        _LONG_CLIP,
        functools.partial(
            downloads.of_list,
            names=("annotations/captions_val2017.json", "captions_val2017.json"),
            pictures=("val2017", "../val2017"),
            each=5,
        ),
    ),
    "coco_karpathy_5k": Benchmark(
        "COCO 2014, Karpathy's test split, all captions",
        (5_000,), (25_010, 25_000), "sentences[*].raw",
        "coco/ (dataset_coco.json, val2014/)",
        "Karpathy and Fei-Fei, arXiv 1412.2306",
        functools.partial(_KARPATHY, names=("dataset_coco.json",), pictures=("val2014",)),
    ),
    "flickr30k_karpathy_1k": Benchmark(
        "Flickr30k, Karpathy's test split",
        (1_000,), (5_000,), "sentences[*].raw",
        "flickr30k/ (dataset_flickr30k.json, flickr30k-images/); flickr30k_test_karpathy.txt",
        "Karpathy and Fei-Fei, arXiv 1412.2306",
        functools.partial(
            _KARPATHY,
            names=("dataset_flickr30k.json", "flickr30k_test_karpathy.txt"),
            pictures=downloads.FLICKR,
        ),
    ),
    "flickr30k_full": Benchmark(
        "all of Flickr30k as one gallery",
        (31_783,), (158_915,), "text of the .token file",
        "flickr30k/ (results_20130124.token, flickr30k-images/)",
        _LONG_CLIP,
        functools.partial(
            downloads.of_list, names=("results_20130124.token",), pictures=downloads.FLICKR
        ),
    ),
}  # fmt: skip


def load(
    name: str,
    source: str,
    *,
    image_root: str = "",
    missing: str = "error",
    empty_caption: str = "error",
    progress: downloads.Progress = None,
) -> tuple[lists.PictureList, str | None]:
    """Returns a benchmark's records, and its name if they are all of it.

    Args:
      name: one of REGISTRY.
      source: the folder of the official download, or a published list file; for the benchmarks
        made of two lists "TRAIN.json,TEST.json" or the folder that holds both; or what any of
        them was packed into.
      image_root: folder of the pictures, where they are not where the download has them.
      missing: what a missing picture does: "error" or "skip".
      empty_caption: what an empty caption does: "error", "skip" or "keep".
      progress: called with (files read, files) where there are thousands of them.

    Returns:
      The records, and `name`; None in its place if `misfit` has something to say.

    Raises:
      types.UserError: if there is no such benchmark, or the source does not hold it.
    """
    choices = ((missing, ("error", "skip")), (empty_caption, ("error", "skip", "keep")))
    for policy, valid in choices:
        if policy not in valid:
            raise types.unknown_name("policy", policy, valid)
    benchmark, source = _known(name), os.path.expanduser(source)
    if pack.is_packed(source):
        pictures = pack.read(source)
    else:
        policies = survey.Policies(
            missing=missing, empty_caption=empty_caption, repeats="keep", splits=None
        )
        root = os.path.abspath(os.path.expanduser(image_root)) if image_root else ""
        pictures = downloads.gather(benchmark.find(source, progress), policies, root)
    return pictures, None if misfit(name, pictures) else name


def misfit(name: str, pictures: lists.PictureList) -> str:
    """Returns why these records may not bear a benchmark's name, "" if they may."""
    benchmark, report = _known(name), pictures.report
    captions = [len(record.captions) for record in pictures.records]
    asking = len(captions) if pictures.queries is None else len(pictures.queries)
    faults = [
        f"{found:,} {what} instead of {' or '.join(f'{size:,}' for size in sizes)}"
        for what, found, sizes in (
            ("pictures", len(captions), benchmark.pictures),
            ("captions", sum(captions), benchmark.captions),
            ("queries", asking, (benchmark.queries or len(captions),)),
        )
        if found not in sizes
    ]
    skipped = report.skipped_missing + report.skipped_empty
    if skipped:
        faults.append(f"{skipped:,} were skipped")
    return f"not called {name}: {', '.join(faults)}" if faults else ""


def canonical(name: str) -> str:
    """Returns the name that the protocol of a benchmark has first.

    Raises:
      types.UserError: if the registry does not know it.
    """
    return _known(name).same_as or name


def fingerprint(pictures: lists.PictureList) -> str:
    """Returns a hash (SHA-256, hexadecimal) of the captions in their order, and of who asks.

    Two copies of a benchmark have the same one, whatever file or folder they were read from.
    """
    content = [[record.captions for record in pictures.records], pictures.queries]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def describe() -> str:
    """Returns the registry as text: sizes, what it is and what it is loaded from."""
    lines = [f"{'name':<22}{'pictures':>9}{'captions':>10}  what it is, and what --root may be"]
    for name, benchmark in REGISTRY.items():
        sizes = f"{benchmark.pictures[0]:>9,}{benchmark.captions[0]:>10,}"
        lines.append(f"{name:<22}{sizes}  {benchmark.what}")
        lines.append(f"{'':<43}{benchmark.sources}")
    return "\n".join(lines)


def _known(name: str) -> Benchmark:
    if name not in REGISTRY:
        raise types.unknown_name("benchmark", name, REGISTRY)
    return REGISTRY[name]
