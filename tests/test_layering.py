"""The import table of the house: a room uses what is below it, never sideways, never above."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "hnclip_jax"

LEVELS = {
    "types": 0,
    "groups": 0,
    "vectors": 0,
    "config": 0,
    "models": 1,
    "losses": 1,
    "parallel": 1,
    "data": 2,
    "weights": 2,
    "adapters": 2,
    "added": 3,
    "training": 3,
    "evaluation": 3,
    "analysis": 3,
    "pretrained": 3,
    "commands": 4,
    "cli": 4,
}

# What only some rooms may import from outside. Libraries that are not named here are free.
KEEPERS = {
    "flax": {"models"},
    "orbax": {"training.checkpoint"},
    "optax": {"models", "losses", "parallel", "training", "evaluation", "analysis", "pretrained"},
    "torch": {"weights.files"},
    "safetensors": {"weights.files"},
    "matplotlib": {"analysis"},
    "tensorboardX": {"training.logging"},
    "absl": {"commands", "cli"},
    "ml_collections": {"config", "commands"},
    "grain": {"data"},
    "PIL": {"data", "analysis.page"},
    "array_record": {"data"},
    "tensorflow_datasets": {"data"},
    "jax": {
        "vectors",
        "models",
        "losses",
        "parallel",
        "adapters",
        "added",
        "training",
        "evaluation",
        "analysis",
        "pretrained",
        "commands",
    },
}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def _dotted(path: pathlib.Path) -> str:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imports(path: pathlib.Path) -> set[str]:
    """Returns the dotted names that a file imports, those for type checkers left out."""
    tree = ast.parse(path.read_text())
    for_checkers = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_checkers:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; write the whole path"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _faults(module: str, imported: set[str]) -> list[str]:
    room = module.split(".")[0]
    faults = []
    for name in imported:
        top, _, rest = name.partition(".")
        if top == "hnclip_jax":
            other = rest.split(".")[0]
            own = other == room or {room, other} <= {"cli", "commands"}
            helper = LEVELS[other] == LEVELS[room] == 0
            if not own and not helper and LEVELS[other] >= LEVELS[room]:
                faults.append(f"{module} (level {LEVELS[room]}) imports {rest}")
        elif top in KEEPERS and not any(
            module == keeper or module.startswith(keeper + ".") for keeper in KEEPERS[top]
        ):
            faults.append(f"{module} imports {name}, which only {sorted(KEEPERS[top])} may")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=_dotted)
def test_imports_only_from_below(path):
    assert not _faults(_dotted(path), _imports(path))


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("losses.tokens", {"hnclip_jax.data"}),
        ("losses.tokens", {"hnclip_jax.models.text"}),
        ("data.lists", {"jax.numpy"}),
        ("training.loop", {"flax.linen"}),
        ("training.loop", {"orbax.checkpoint.v1"}),
        ("training.loop", {"hnclip_jax.evaluation.embed"}),
        ("pretrained", {"hnclip_jax.training.state"}),
    ],
)
def test_the_table_forbids_what_it_should(module, imported):
    assert _faults(module, imported)


def test_no_room_is_too_large():
    lines = {_dotted(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_every_file_says_what_it_is():
    for path in MODULES:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        assert first, f"{path} has no docstring"
        assert first.endswith((".", ":")), f"{path}: the first line is no sentence: {first!r}"
