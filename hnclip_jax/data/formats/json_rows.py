"""Rows of JSON: an array, lines, or the one object of COCO, Karpathy and FLAIR."""

import posixpath
from typing import Any

from hnclip_jax import types
from hnclip_jax.data import compact
from hnclip_jax.data.formats import fields, json_stream, textfile

NEEDED = (
    'needed are a JSON array, JSON lines or {"annotations": [...]} '
    'of rows like {"filename": "a.jpg", "caption": "A red kite."}, '
    "or the captions file of COCO, Karpathy or Flickr30k, or a table with a header"
)


def read(path: str, file: textfile.TextFile, start: str) -> tuple[compact.Compact, str]:
    """Returns the rows of a file whose first character is `start`, and its kind.

    Raises:
      types.UserError: if it is no JSON, or not of rows.
    """
    stream = json_stream.JsonStream(path, file)
    collector = fields.Collector(path, extra_keys=fields.EXTRA_KEYS)
    if start == "[":
        for record in stream.elements():
            collector.add(record)
        stream.end()
        return collector.finish(NEEDED), "JSON array"
    whole = _Object(path, stream)
    if stream.peek() or fields.first_key(whole.rest, fields.IMAGE_KEYS):
        collector.add(whole.rest)
        while stream.peek():
            collector.add(stream.value())
        return collector.finish(NEEDED), "JSON lines"
    return whole.rows()


class _Object:
    """The first object of a file, its long arrays made into rows while they pass by."""

    def __init__(self, path: str, stream: json_stream.JsonStream) -> None:
        self._path = path
        self.rest: dict[str, Any] = {}
        self._arrays: dict[str, fields.Collector] = {}
        self._pictures: dict[int, fields.Row] = {}
        self._notes: dict[int, list[Any]] = {}
        self._karpathy = self._captioned = False
        takers = {"images": self._take_image, "annotations": self._take_annotation}
        for key in stream.keys():  # noqa: SIM118
            if key in takers and stream.peek() == "[":
                self._arrays[key] = fields.Collector(path, extra_keys=fields.EXTRA_KEYS)
                for element in stream.elements():
                    takers[key](element)
            else:
                self.rest[key] = stream.value()

    def rows(self) -> tuple[compact.Compact, str]:
        """Returns the rows of an object that is a whole list, and its kind."""
        if self._karpathy:
            return self._arrays["images"].finish(NEEDED), "Karpathy"
        if self._pictures and "annotations" in self._arrays:
            return self._coco(), "COCO captions"
        if self._arrays.keys() == {"annotations"} and not self._notes:
            return self._arrays["annotations"].finish(NEEDED), "annotations"
        raise types.UserError(
            f"{self._path} is one object with the keys "
            f"{fields.key_list({**self.rest, **self._arrays})}; {NEEDED}"
        )

    def _take_image(self, element: Any) -> None:
        if isinstance(element, dict) and "sentences" in element:
            self._karpathy = True
            folder, name = element.get("filepath"), element.get("filename")
            if isinstance(folder, str) and isinstance(name, str):
                element = {**element, "filename": posixpath.join(folder, name)}
        elif isinstance(element, dict) and isinstance(element.get("id"), int):
            row = fields.from_record({**element, "caption": ""})
            if row:
                self._pictures[element["id"]] = row
                return
        self._arrays["images"].add(element)

    def _take_annotation(self, element: Any) -> None:
        number = element.get("image_id") if isinstance(element, dict) else None
        if isinstance(number, int) and not fields.first_key(element, fields.IMAGE_KEYS):
            self._captioned |= "caption" in element
            self._notes.setdefault(number, []).append(element.get("caption"))
        else:
            self._arrays["annotations"].add(element)

    def _coco(self) -> compact.Compact:
        if self._notes and not self._captioned:
            raise types.UserError(
                f"{self._path}: its annotations hold no captions; take the file of COCO whose name "
                "begins with captions_"
            )
        others = {key: len(found) for key, found in self._arrays.items() if len(found)}
        if others:
            raise types.UserError(
                f"{self._path}: {others} of its entries are not in COCO's form, which is "
                "images with id and file_name, and annotations with image_id and caption"
            )
        strangers = sorted(self._notes.keys() - self._pictures.keys())
        if strangers:
            shown = types.at_most_ten([str(number) for number in strangers])
            raise types.UserError(
                f"{self._path}: {len(strangers)} values of image_id in its annotations are no id "
                f"of its images ({shown}); the file needs both"
            )
        rows = compact.Compact()
        for number in sorted(self._pictures):
            rows.append(self._pictures[number]._replace(captions=self._notes.get(number, [None])))
        return rows
