"""The median of each server's rounds, and its ratio to Tidegate's, as a Markdown table."""

import json
import pathlib
import statistics
import sys

FIGURES = [
    ("msg/s", ["cost", "messages_per_second"]),
    ("server CPU µs/msg", ["cost", "server_cpu_us_per_message"]),
    ("p50 ms", ["phases", 0, "latency_ms", "p50"]),
    ("p99 ms", ["phases", 0, "latency_ms", "p99"]),
    ("max ms", ["phases", 0, "latency_ms", "max"]),
    ("user B/connection", ["memory", "user_bytes_per_connection"]),
    ("round trip p50 µs (125 B)", ["125_bytes", "round_trip_us", "p50"]),
    ("round trip p99 µs (125 B)", ["125_bytes", "round_trip_us", "p99"]),
]


def value(result, path):
    for step in path:
        try:
            result = result[step]
        except (KeyError, IndexError, TypeError):
            return None
    return result


def main():
    rounds = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*-[0-9]*.json")):
        text = path.read_text()
        if text.strip():
            rounds.setdefault(path.stem.rsplit("-", 1)[0], []).append(json.loads(text)["result"])
    names = ["tidegate"] + [name for name in rounds if name != "tidegate"]
    names = [name for name in names if name in rounds]
    print("| |", " | ".join(names), "|")
    print("| --- |", " | ".join("---" for _ in names), "|")
    ours = {}
    for title, path in FIGURES:
        cells = []
        for name in names:
            values = [value(result, path) for result in rounds[name]]
            values = [number for number in values if number is not None]
            if not values:
                cells.append("")
                continue
            median = statistics.median(values)
            ours.setdefault(title, median)
            ratio = f" (×{median / ours[title]:.2f})" if ours[title] and name != "tidegate" else ""
            cells.append(f"{median:,.3f}{ratio}" if median < 1000 else f"{median:,.0f}{ratio}")
        if any(cells):
            print(f"| {title} |", " | ".join(cells), "|")
    valid = [f"{sum(r['is_valid'] for r in rounds[n])} of {len(rounds[n])}" for n in names]
    print("| valid runs |", " | ".join(valid), "|")


main()
