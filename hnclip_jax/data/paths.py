"""Where the pictures of a list are: the places that are tried, in order.

1. the path as it is, if absolute; else from the list's folder;
2. from the folder above that;
3. from `image_root`;
4. from `image_root`, without the first, the first two, ... folders of the path, down to the bare
   name: so a published list, whose paths begin with a placeholder, fits any copy of the pictures.
"""

import os
from collections.abc import Iterator, Sequence

from hnclip_jax import types


class Places:
    """The places for the pictures of one list.

    Args:
      folder: of the list.
      image_root: folder of the pictures; "" if there is none.
    """

    def __init__(self, folder: str, image_root: str = "") -> None:
        """Remembers the folders."""
        self._folders = [folder, os.path.dirname(folder)] + [image_root] * bool(image_root)
        self._root = image_root

    def tried(self, name: str) -> Iterator[str]:
        """Yields the paths that a picture may have, in order; an absolute one may come twice."""
        for folder in self._folders:
            # join leaves an absolute name as it is.
            yield os.path.join(folder, name)
        rest = name.lstrip("/") if self._root else ""
        if rest != name and rest:
            yield os.path.join(self._root, rest)
        while "/" in rest:
            rest = rest.split("/", 1)[1].lstrip("/")
            yield os.path.join(self._root, rest)

    def find(self, name: str) -> int:
        """Returns the number of the first path of `tried` that is a file; -1 if none is."""
        # isfile is also False for what can be no path, such as a name with a null character.
        return next((n for n, path in enumerate(self.tried(name)) if os.path.isfile(path)), -1)

    def path(self, name: str, number: int) -> str:
        """Returns the path of that number."""
        return next(path for n, path in enumerate(self.tried(name)) if n == number)

    def locate(self, name: str) -> str | None:
        """Returns the path of a picture, None if it is not there."""
        number = self.find(name)
        return None if number < 0 else self.path(name, number)

    def rebased(self, number: int) -> bool:
        """Returns whether the path of that number has lost folders of the name."""
        return number >= len(self._folders)


def resolve(names: Sequence[str], folder: str, image_root: str = "") -> list[str]:
    """Returns the path of every picture, "" for those that are missing.

    Args:
      names: as the list has them.
      folder: of the list.
      image_root: folder of the pictures, "" for none.
    """
    places = Places(folder, image_root)
    numbers = [places.find(name) for name in names]
    return [
        places.path(name, number) if number >= 0 else ""
        for name, number in zip(names, numbers, strict=True)
    ]


def missing_error(
    path: str, name: str, places: Places, *, count: str, first: str, folders: dict[str, int]
) -> types.UserError:
    """Returns the error for missing pictures.

    Args:
      path: of the list.
      name: the first picture that is missing.
      places: where it was looked for.
      count: how many of how many pictures.
      first: which rows are the first ones.
      folders: how many are missing of each folder that the list names.
    """
    many = ""
    if sum(folders.values()) > 5:
        ranked = sorted(folders.items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{number} of {folder or '(no folder)'}" for folder, number in ranked]
        many = f", by folder: {types.at_most_ten(shown)}"
    tried = types.at_most_ten(list(dict.fromkeys(places.tried(name))))
    return types.UserError(
        f"{path}: {count} are missing ({first}){many}; the first, {name!r}, is none of {tried}; "
        "set image_root to their folder, or missing to 'skip'"
    )
