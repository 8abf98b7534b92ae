"""A real Prometheus with our scrape file and rules, and the dashboard's queries."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import httpx
import pytest
import yaml

from tests.configs.programs import CONFIGS, answered, copy, free_port, program, running
from tests.conftest import model_folder
from tests.server.live import Live, serving

BODY = {"prompt": "The class", "max_tokens": 30, "ignore_eos": True, "temperature": 0}
RULES: list[dict[str, Any]] = yaml.safe_load((CONFIGS / "alerts.yml").read_text())["groups"][0]["rules"]
PANELS: list[dict[str, Any]] = json.loads((CONFIGS / "grafana.json").read_text())["panels"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
QUERIES = [query.replace("$__rate_interval", "10s").replace("$model", ".*") for query in EXPRESSIONS]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    cache = str(tmp_path_factory.mktemp("cache"))
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache, "--api-key", "a-key") as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a Prometheus that watches the server."""
    command = program("prometheus", "prometheus")
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    (folder / "key").write_text("a-key")
    shutil.copy(CONFIGS / "alerts.yml", folder)
    changes = {
        "127.0.0.1:8000": live.url.removeprefix("http://"),
        "/etc/prometheus/paceline.key": str(folder / "key"),
        "scrape_interval: 15s": "scrape_interval: 250ms",
        "evaluation_interval: 15s": "evaluation_interval: 1s",
    }
    conf = copy("prometheus.yml", folder, changes)
    flags = [f"--config.file={conf}", f"--storage.tsdb.path={folder}/data", "--log.level=error"]
    with running(command, *flags, f"--web.listen-address=127.0.0.1:{port}") as process:
        api = f"http://127.0.0.1:{port}/api/v1"
        answered(api + "/status/config", process)
        yield api


def values(api: str, query: str) -> list[str]:
    """What a query has now."""
    answer = httpx.get(api + "/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    return [row["value"][1] for row in answer["data"]["result"]]


def test_it_scrapes_with_the_key_and_loads_the_rules(prometheus: str) -> None:
    assert len(httpx.get(prometheus + "/rules").json()["data"]["groups"][0]["rules"]) == len(RULES)
    while not values(prometheus, "paceline_up"):  # until the first scrape; without one the test run's limit ends it
        assert values(prometheus, 'up{job="paceline"}') in ([], ["1"])
    assert values(prometheus, "paceline_up") == ["1"]


def test_every_query_of_the_dashboard_has_an_answer(prometheus: str, live: Live) -> None:
    assert len(QUERIES) > 35
    for query in QUERIES:
        for _ in range(500):
            live.post("/v1/completions", BODY, authorization="Bearer a-key")
            found = values(prometheus, query)
            if found and "NaN" not in found:
                break
        assert found, query
        assert "NaN" not in found, query


def test_every_alert_and_panel_names_metrics_that_there_are(live: Live) -> None:
    text = live.get("/metrics", authorization="Bearer a-key").text
    served = set(re.findall(r"^([\w:]+)", text, re.MULTILINE)) | {"up"}
    queries = [*QUERIES, *(rule["expr"] for rule in RULES)]
    named = {name for query in queries for name in re.findall(r"\b(?:vllm:|paceline_|process_|up\b)\w*", query)}
    assert named <= served


def test_the_dashboard_s_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        own = {(a, b) for a in range(x, x + w) for b in range(y, y + h)}
        assert not own & cells, panel["title"]
        assert x + w <= 24
        cells |= own
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_promtool_takes_the_files_and_every_alert_fires_when_it_should(tmp_path: Path) -> None:
    promtool = program("promtool", "prometheus")
    for name in ("alerts.yml", "prometheus.yml"):
        copy(name, tmp_path, {})
    bad = {
        'up{instance="b",job="paceline"}': "0x25",
        'paceline_up{instance="a"}': "0x25",
        'vllm:num_requests_waiting{instance="a"}': "3x25",
        'paceline_step_failures_total{instance="a"}': "0+1x25",
        'vllm:admission_rejections_total{instance="a",reason="queue_full"}': "0+60x25",
        'vllm:time_to_first_token_seconds_bucket{instance="a",le="10"}': "0+1x25",
        'vllm:time_to_first_token_seconds_bucket{instance="a",le="20"}': "0+60x25",
        'vllm:time_to_first_token_seconds_bucket{instance="a",le="+Inf"}': "0+60x25",
        'vllm:inter_token_latency_seconds_bucket{instance="a",le="0.5"}': "0+1x25",
        'vllm:inter_token_latency_seconds_bucket{instance="a",le="1"}': "0+60x25",
        'vllm:inter_token_latency_seconds_bucket{instance="a",le="+Inf"}': "0+60x25",
    }
    fires = [
        {
            "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})',
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for rule in RULES
    ]
    series = [{"series": name, "values": numbers} for name, numbers in bad.items()]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": fires}]
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}))
    for command in ("check config --syntax-only prometheus.yml", "check rules alerts.yml", "test rules test.yml"):
        done = run([promtool, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
