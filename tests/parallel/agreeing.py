"""What test_agreement.py runs as several processes: each case differs on process 1."""

import pathlib
import sys

import jax

from hnclip_jax import config, groups, types
from hnclip_jax.parallel import agreement, cluster


def _config(index, **values):
    group = groups.ParallelGroup(process_count=3, process_index=index, coordinator=f"host{index}:1")
    optim = groups.OptimGroup(lr=1e-3 if index == 1 else 1e-5)
    return config.to_json(config.Config(parallel=group, optim=optim, **values))


def _mistaken(index):
    with agreement.together():
        if index == 1:
            raise types.UserError("there is no list x.json")


def _all_but_one_mistaken(index):
    with agreement.together():
        if index:
            raise types.UserError(f"there is no list {index}.json")


def _together(index):
    with agreement.together():
        pass
    agreement.check({"epochs": 3, "best": None}, "do not")
    agreement.check(agreement.config_facts(_config(0 if index == 1 else index)), "do not")


CASES = {
    "agree": _together,
    "config": lambda index: agreement.check(
        agreement.config_facts(_config(index)), "start the same command on every host"
    ),
    "list": lambda index: agreement.check(
        {"data list sha256": "ab12" if index == 1 else "cd34", "steps": 10}, "give all one list"
    ),
    "mistake": _mistaken,
    "mistakes": _all_but_one_mistaken,
    "shared": lambda index: agreement.check_shared(pathlib.Path(sys.argv[3])),
    "apart": lambda index: agreement.check_shared(
        pathlib.Path(sys.argv[3]) / ("other" if index == 1 else "one")
    ),
    "unwritable": lambda index: agreement.check_shared(pathlib.Path(sys.argv[3]) / "file" / "in"),
}


def main():
    port, index = sys.argv[1:3]
    agreement._VISIBLE_S = 1
    cluster.start(
        groups.ParallelGroup(
            coordinator=f"127.0.0.1:{port}", process_count=3, process_index=int(index)
        )
    )
    for name, case in CASES.items():
        try:
            case(jax.process_index())
        except types.UserError as error:
            print(f"{name}: {error}", flush=True)
        else:
            print(f"{name}: none", flush=True)


if __name__ == "__main__":
    main()
