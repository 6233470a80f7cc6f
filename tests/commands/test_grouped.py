"""`hnclip train` with grouped batches: what it reads, says, goes on with and refuses."""

import json

import pytest

from hnclip_jax.data import grouping, lists, neighbours

ASKED = ("--config.data.grouping=captions", "--config.data.group_size=4")


@pytest.fixture
def expected(own_set):
    """The first six batches of groups of four."""
    records = lists.read(own_set).records
    captions = [caption for record in records for caption in record.captions]
    ids = lists.pair_ids(records)
    groups = grouping.Groups(neighbours.find(captions, ids, 48)[0], ids, 4, 42)
    rows = [row for epoch in range(2) for row in groups.order(epoch).tolist()]
    return [rows[low : low + 16] for low in range(0, 96, 16)]


def test_it_trains_on_groups(train, quick, expected):
    ran = train(*ASKED)
    assert ran.code == 0, ran.err
    assert quick.rows == expected
    assert "groups of 4 near-duplicate captions: of the 48 nearest" in ran.err
    assert "nearest captions: 64 of 64 captions" in ran.err


def test_it_goes_on_where_it_stopped(train, quick, expected):
    assert train(*ASKED, "--stop_after=3").code == 0
    assert train(*ASKED).code == 0
    assert quick.rows == expected


def test_another_order_is_another_run(train, quick, tmp_path):
    assert train("--stop_after=3").code == 0
    plain = list(quick.rows)
    assert "data.grouping was 'none'" in train(*ASKED).one_line()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["grouping"] == "none"
    assert train("--stop_after=3", workdir="again").code == 0
    assert quick.rows == plain * 2


def test_groups_that_do_not_fit_are_refused(train, quick):
    ran = train(ASKED[0], "--config.data.group_size=5")
    assert "group_size=5 captions do not fit whole into 16 pairs" in ran.one_line()
    ran = train(*ASKED, "--config.train.micro_batches=2")
    assert "do not fit whole into 1 pairs" in ran.one_line()


def test_captions_that_are_all_equal(train, quick, own_set):
    rows = json.loads(own_set.read_text())
    own_set.write_text(json.dumps([{**row, "caption": "one and the same"} for row in rows]))
    ran = train(*ASKED)
    assert ran.code == 0, ran.err
    assert "at random: none has others to be near to" in ran.err
    assert sorted(row for batch in quick.rows[:4] for row in batch) == list(range(64))
