"""The load figures of a server under stress, by hand: python -m tests.load.hold a b f --model FOLDER

Each scenario starts `paceline serve` anew and prints one line of figures. They depend on the machine and on who shares
it; nothing here asserts them.
"""

import argparse
import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from tests.load.client import Told, Watch, stream, words
from tests.server.live import Live, metric, serving

LIMITS = httpx.Limits(max_connections=None)


def client(live: Live) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=live.url, timeout=600, limits=LIMITS)


def rss(live: Live) -> int:
    """Kibibytes of anonymous memory."""
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0])


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def percentile(values: list[float], rank: float) -> str:
    return ms(float(np.percentile(values, rank)))


async def settled(live: Live) -> int:
    """Wait until nothing is in flight; what memory there is then."""
    await asyncio.to_thread(live.settled)
    return rss(live)


async def a_long_prompt_beside_streams(live: Live, _: float) -> str:
    async with client(live) as http, Watch(http) as watch:
        await asyncio.gather(stream(http, words(9, 3000), 2), stream(http, words(8, 200), 40))  # learns the pace
        streams = [asyncio.create_task(stream(http, words(i, 60), 500)) for i in range(4)]
        await asyncio.sleep(2)
        long = await stream(http, words(7, 8000), 4)
        told = await asyncio.gather(*streams)
    gaps = [gap for one in told for gap in one.gaps]
    return (
        f"ITL median {percentile(gaps, 50)}, p99 {percentile(gaps, 99)}, worst {ms(max(gaps))}; "
        f"TTFT of the 8,000 {long.ttft:.1f} s; probes p99 {percentile(watch.times, 99)}"
    )


async def b_short_prompts_behind_a_long_one(live: Live, _: float) -> str:
    async with client(live) as http:
        long = asyncio.create_task(stream(http, words(7, 6000), 8))
        await asyncio.sleep(0.05)
        short = await asyncio.gather(*(stream(http, words(i, 20), 8) for i in range(10)))
        return f"TTFT short, worst {max(one.ttft for one in short):.2f} s; long {(await long).ttft:.2f} s"


async def c_twice_the_capacity(live: Live, seconds: float) -> str:
    return await crowded(live, seconds, 300, 40)


async def e_long_requests_in_little_memory(live: Live, seconds: float) -> str:
    return await crowded(live, seconds, 1200, 200)


async def crowded(live: Live, seconds: float, longest: int, new: int) -> str:
    """Sixty-four clients in a closed loop, 30 % of which leave in the middle.

    Memory is compared between pauses. The first half warms up, its first part with prompts twice as long, so that no
    step after it is larger than any before: what onnxruntime's arena has taken it keeps.
    """
    found, loop, rng = Counter[str](), asyncio.get_running_loop(), random.Random(0)
    most, pauses = 0, list[tuple[int, int]]()

    async def one(http: httpx.AsyncClient, end: float, longest: int) -> None:
        nonlocal most
        while loop.time() < end:
            leave = rng.randrange(1, 20) if rng.random() < 0.3 else None
            told = await stream(http, words(rng.randrange(10**6), rng.randrange(5, longest)), new, leave=leave)
            found["left" if leave else f"{told.status}"] += 1
            most = max(most, rss(live))

    async with client(live) as http, Watch(http) as watch:
        for part in range(6):
            end = loop.time() + seconds / 6
            await asyncio.gather(*(one(http, end, longest if part else 2 * longest) for _ in range(64)))
            pauses.append((found.total(), await settled(live)))
        load = (await http.get("/load")).json()
    _, _, (first, before), *_, (last, after) = pauses
    return (
        f"{dict(found)}; probes p99 {percentile(watch.times, 99)}; at the end {load};\n"
        f"    RssAnon idle {', '.join(f'{size} KiB after {count}' for count, size in pauses)}, at most {most};\n"
        f"    {(after - before) / (last - first):.2f} KiB a request after {first}"
    )


async def d_two_keys(live: Live, seconds: float) -> str:
    """One key with 40 requests in flight, one with 4, for a while: tokens that each was given."""
    given, loop = Counter[str](), asyncio.get_running_loop()
    end = loop.time() + seconds

    async def one(key: str, number: int, http: httpx.AsyncClient) -> None:
        while loop.time() < end:
            number += 1000
            told = await stream(http, words(number, 100), 30, authorization=f"Bearer {key}")
            given[key] += len(told.times) if loop.time() < end else 0

    async with client(live) as http:
        await asyncio.gather(*(one("much", i, http) for i in range(40)), *(one("few", 500 + i, http) for i in range(4)))
    return f"{dict(given)}, ratio {given['much'] / given['few']:.2f}"


async def f_a_chat_of_ten_turns(live: Live, _: float) -> str:
    async with client(live) as http:
        prompt, told = words(1, 300), Told()
        for turn in range(10):
            told = await stream(http, prompt, 40)
            prompt = [*prompt, *words(turn + 50, 150)]
    return f"TTFT of turn 10 ({len(prompt) - 150} tokens): {ms(told.ttft)}, usage {told.usage}"


async def g_thirty_short_chats(live: Live, _: float) -> str:
    async with client(live) as http:
        told = await asyncio.gather(*(stream(http, words(i, 40), 30) for i in range(30)))
    return f"{Counter(one.status for one in told)}, whole {sum(one.whole for one in told)}, worst TTFT " + ms(
        max(one.ttft for one in told)
    )


async def s_thirty_chats_with_one_system_prompt(live: Live, _: float) -> str:
    async with client(live) as http:
        told = await asyncio.gather(*(stream(http, [*words(0, 150), *words(i + 1, 40)], 30) for i in range(30)))
    ttft = [one.ttft for one in told]
    return f"TTFT median {np.median(ttft):.2f} s, worst {max(ttft):.2f} s; the last usage {told[-1].usage}"


async def h_sigterm_under_load(live: Live, _: float) -> str:
    async with client(live) as http:
        streams = [asyncio.create_task(stream(http, words(i, 40), 150)) for i in range(12)]
        await asyncio.sleep(1)
        live.process.send_signal(signal.SIGTERM)
        told = await asyncio.gather(*streams)
    live.process.wait(60)
    return f"{sum(one.whole for one in told)} of {len(told)} whole, exit code {live.process.returncode}"


async def k_many_tiny_requests(live: Live, _: float) -> str:
    """Eleven thousand, of which 30 % leave: what of each stays in memory, seen in the pauses between thousands."""
    rng, sent, course = random.Random(0), 0, list[int]()

    async def one(http: httpx.AsyncClient, end: int) -> None:
        nonlocal sent
        while sent < end:
            sent += 1
            leave = 1 if rng.random() < 0.3 else None
            await stream(http, words(rng.randrange(10**6), rng.randrange(3, 12)), 2, leave=leave)

    async with client(live) as http:
        for end in range(1000, 11_001, 1000):
            await asyncio.gather(*(one(http, end) for _ in range(48)))
            course.append(await settled(live))
    return (
        f"RssAnon {', '.join(map(str, course))} KiB, {(course[-1] - course[4]) / 6000:.2f} KiB each of the last 6,000"
    )


Scenario = Callable[[Live, float], Coroutine[None, None, str]]
SCENARIOS: dict[str, tuple[Scenario, list[str]]] = {
    "a": (a_long_prompt_beside_streams, []),
    "b": (b_short_prompts_behind_a_long_one, []),
    "c": (c_twice_the_capacity, []),
    "c-": (c_twice_the_capacity, ["--no-prefix-reuse"]),
    "d": (d_two_keys, ["--slots", "4", "--api-key", "much", "--api-key", "few"]),
    "e": (e_long_requests_in_little_memory, []),
    "f": (f_a_chat_of_ten_turns, []),
    "f-": (f_a_chat_of_ten_turns, ["--no-prefix-reuse"]),
    "g": (g_thirty_short_chats, []),
    "k": (k_many_tiny_requests, ["--no-prefix-reuse"]),
    "s": (s_thirty_chats_with_one_system_prompt, []),
    "h": (h_sigterm_under_load, []),
}


LIMITED = {"e": 2 << 30}
"""Bytes of the control group that a scenario's server lives in."""

GROUP = Path("/sys/fs/cgroup/memory/paceline-hold")


@contextmanager
def group(limit: int | None) -> Iterator[None]:
    """What is started in the block is started in a control group (v1, as root) with a limit; this process is in it."""
    if limit is None:
        yield
        return
    GROUP.mkdir(exist_ok=True)
    (GROUP / "memory.limit_in_bytes").write_text(f"{limit}")
    mine = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
    (GROUP / "cgroup.procs").write_text(f"{os.getpid()}")
    try:
        yield
    finally:
        print("   ", (GROUP / "memory.oom_control").read_text().split("\n")[2], flush=True)
        (GROUP.parent / mine.split(":", 2)[2].lstrip("/") / "cgroup.procs").write_text(f"{os.getpid()}")
        GROUP.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=[*SCENARIOS], choices=[*SCENARIOS, []])
    parser.add_argument("--seconds", type=float, default=600, help="of the scenarios c, d and e")
    parser.add_argument("--model", default="", help="a folder; the default model where none is given")
    arguments = parser.parse_args()
    for name in arguments.scenarios:
        scenario, flags = SCENARIOS[name]
        with group(LIMITED.get(name)), serving(*filter(None, [arguments.model]), *flags) as live:
            line = asyncio.run(scenario(live, arguments.seconds))
            if live.process.poll() is None:
                peak = Path(f"/proc/{live.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
                preempted = metric(live.get("/metrics", authorization="Bearer few").text, "vllm:num_preemptions_total")
                line += f"; VmHWM {int(peak) // 1024} MiB, {preempted:.0f} preemptions"
            print(f"({name}) {line}", flush=True)


if __name__ == "__main__":
    main()
