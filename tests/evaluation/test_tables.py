"""What a result looks like on the screen."""

from hnclip_jax.evaluation import protocol, tables

PROTOCOL = {"captions": 1200, "pictures": 400, "truncated_captions": 2, "duplicate_captions": 1}
METRICS = {"t2i_r@1": 12.5, "t2i_r@10": 100.0, "i2t_r@1": 6.25, "i2t_r@10": 50.0, "ties": 3}


def test_both_directions_and_every_metric():
    assert tables.table(protocol.Result(METRICS, PROTOCOL)).splitlines() == [
        "1,200 captions, 400 pictures",
        "direction            R@1    R@10",
        "text to image      12.50  100.00",
        "image to text       6.25   50.00",
        "ties 3, truncated captions 2, duplicate captions 1",
    ]


def test_intervals_precision_and_a_part_that_asks():
    metrics = {
        "t2i_r@1": 12.5,
        "t2i_map@10": 20.0,
        "t2i_median_rank": 3.0,
        "i2t_r@1": 6.25,
        "i2t_map@10": 10.0,
        "i2t_median_rank": 14.5,
        "ties": 0,
    }
    about = {
        **PROTOCOL,
        "benchmark": "long_dci_holdout",
        "t2i_queries": 300,
        "i2t_queries": 100,
        "relevance": "group",
        "interval": "95% percentile bootstrap",
    }
    intervals = {"t2i_r@1": [11.0, 15.0], "t2i_median_rank": [2.0, 5.0]}
    assert tables.table(protocol.Result(metrics, about, intervals)).splitlines() == [
        "long_dci_holdout: 1,200 captions, 400 pictures; of these ask 300 captions, 100 pictures",
        "direction                 R@1  mAP@10    median",
        "text to image     12.50 ±2.00   20.00  3.0 ±1.5",
        "image to text            6.25   10.00      14.5",
        "ties 0, truncated captions 2, duplicate captions 1",
        "mAP by relevance 'group': right is all of a group",
        "±: half of the 95% percentile bootstrap",
    ]


def test_a_benchmark_that_lost_its_name_is_not_named():
    result = protocol.Result(METRICS, {**PROTOCOL, "benchmark": None})
    assert tables.table(result).startswith("1,200 captions")
