"""Tasks on plain files."""

from __future__ import annotations

import json
import random

from atlas_gym.task.kinds import AnswerNumber, AnswerText, FileCheck, UnchangedCheck
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.task.template import Draft, template

from .words import people, program

FILES = "server-filesystem"


@template(servers=(FILES,), difficulty="easy")
def log_errors(rng: random.Random) -> Draft:
    services = rng.sample(("auth", "billing", "search", "mailer", "gateway", "reports"), 4)
    day = f"2024-0{rng.randint(1, 9)}-{rng.randint(10, 27)}"
    counts = dict(zip(services, rng.sample(range(3, 14), 4), strict=True))
    files = []
    for service in services:
        lines = [
            (f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}", "ERROR", day)
            for _ in range(counts[service])
        ]
        lines += [
            (f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}", rng.choice(("INFO", "WARN")), day)
            for _ in range(12)
        ]
        lines += [("23:59", "ERROR", day[:8] + "09")] * rng.randint(1, 4)
        rng.shuffle(lines)
        text = "".join(
            f"{d}T{t}:00Z {level} {service}: request {rng.randint(1000, 9999)}\n" for t, level, d in lines
        )
        files.append(TextFile(path=f"logs/{service}.log", text=text))
    worst = max(counts, key=lambda s: counts[s])
    gold = """
        fs = MCPServer("server-filesystem")
        listing = fs.list_directory(path="/workspace/logs")
        listing = listing["content"] if isinstance(listing, dict) else listing
        counts = {}
        for line in listing.splitlines():
            name = line.split()[-1]
            text = fs.read_text_file(path="/workspace/logs/" + name)
            text = text["content"] if isinstance(text, dict) else text
            counts[name] = sum(row.startswith($day) and " ERROR " in row for row in text.splitlines())
        worst = max(counts, key=counts.get)
        answer(f"{sum(counts.values())} errors; most in {worst}")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Look through the logs in /workspace/logs: how many ERROR lines were written on {day} "
                "over all services, and which service wrote the most of them?",
                f"Something went wrong on {day}. Count the ERROR lines of that day in all files of "
                "/workspace/logs, and tell me the total and the service with the most.",
            )
        ),
        gold=program(gold, day=day),
        checks=(
            AnswerNumber(name="states the total", value=sum(counts.values()), limit=3),
            AnswerText(
                name="names the service", all_of=(worst,), options=tuple(s for s in services if s != worst)
            ),
        ),
        setup=Setup(files=tuple(files)),
        params={"day": day, "worst": worst},
    )


@template(servers=(FILES,), difficulty="medium")
def file_by_client(rng: random.Random) -> Draft:
    clients = [name.split()[1] for name in people(rng, 3)]
    texts: dict[str, str] = {}
    home: dict[str, str] = {}
    for number in rng.sample(range(10, 99), 7):
        name = f"scan_{number}.txt"
        client = clients[len(home) % 3] if len(home) < 5 else ""
        date = f"2024-0{rng.randint(1, 9)}-{rng.randint(10, 28)}"
        head = f"Client: {client}\n" if client else "Client unknown\n"
        texts[name] = f"Scan of {date}\n{head}Pages: {rng.randint(1, 30)}\n"
        home[name] = client
    gold = """
        fs = MCPServer("server-filesystem")
        def text(value):
            return value["content"] if isinstance(value, dict) else value
        for line in text(fs.list_directory(path="/workspace/incoming")).splitlines():
            name = line.split()[-1]
            for row in text(fs.read_text_file(path="/workspace/incoming/" + name)).splitlines():
                if row.startswith("Client: "):
                    folder = "/workspace/clients/" + row.removeprefix("Client: ").strip()
                    fs.create_directory(path=folder)
                    fs.move_file(source="/workspace/incoming/" + name, destination=folder + "/" + name)
        answer("Sorted the scans by client.")
    """
    moved = [name for name in texts if home[name]]
    return Draft(
        prompt=rng.choice(
            (
                "Please sort the scans in /workspace/incoming: each file says inside which client it "
                "belongs to. Move it to /workspace/clients/<client>/ under the same name. Scans without "
                "a client stay where they are.",
                "Every text file in /workspace/incoming names its client in a line of its own. File them "
                "away for me as /workspace/clients/<client>/<file name>, and leave the ones with no "
                "known client in the folder.",
            )
        ),
        gold=program(gold),
        checks=(
            *(
                FileCheck(
                    name=f"{name} is with its client", path=f"clients/{home[name]}/{name}", equals=texts[name]
                )
                for name in moved
            ),
            *(
                FileCheck(name=f"{name} left the folder", weight=0.5, path=f"incoming/{name}", exists=False)
                for name in moved
            ),
            *(
                UnchangedCheck(name=f"{name} stays", of="file", path=f"incoming/{name}")
                for name in texts
                if not home[name]
            ),
        ),
        setup=Setup(
            files=tuple(TextFile(path=f"incoming/{name}", text=text) for name, text in texts.items())
        ),
        params={"moved": len(moved)},
    )


@template(servers=(FILES,), difficulty="medium")
def config_rollout(rng: random.Random) -> Draft:
    version = f"{rng.randint(2, 5)}.{rng.randint(0, 9)}.{rng.randint(1, 9)}"
    old, new = rng.sample(range(10, 90, 5), 2)
    stages = ("dev", "staging", "prod")
    configs = {
        stage: {
            "service": "checkout",
            "release": "1.0.0",
            "timeout_s": old,
            "retries": rng.randint(1, 5),
            "host": f"{stage}.internal.example",
            "tags": [stage, "eu"],
        }
        for stage in stages
    }
    gold = """
        import json
        fs = MCPServer("server-filesystem")
        def text(value):
            return value["content"] if isinstance(value, dict) and "content" in value else value
        version = text(fs.read_text_file(path="/workspace/RELEASE.txt"))
        version = version.split("version:")[1].split()[0]
        for stage in ("staging", "prod"):
            path = f"/workspace/config/{stage}.json"
            config = text(fs.read_text_file(path=path))
            config = json.loads(config) if isinstance(config, str) else config
            config.update(release=version, timeout_s=$new)
            fs.write_file(path=path, content=json.dumps(config, indent=2) + "\\n")
        answer("staging and prod are updated.")
    """
    notes = f"Checkout service\n\nversion: {version}\nowner: payments team\n"

    def kept(stage: str) -> dict[str, object]:
        return {**configs[stage], "release": version, "timeout_s": new}

    return Draft(
        prompt=rng.choice(
            (
                "Roll out the new release: in the configs of staging and prod (/workspace/config) set "
                f"timeout_s to {new} and release to the version that stands in /workspace/RELEASE.txt. Do "
                "not touch dev, and keep the other settings.",
                "The staging and prod JSON files in /workspace/config need two changes: timeout_s "
                f"becomes {new}, and release becomes the version given in /workspace/RELEASE.txt. All "
                "else, and dev, stays as it is.",
            )
        ),
        gold=program(gold, new=new),
        checks=(
            FileCheck(name="staging", path="config/staging.json", expected={"": kept("staging")}),  # type: ignore[dict-item]
            FileCheck(name="prod", path="config/prod.json", expected={"": kept("prod")}),  # type: ignore[dict-item]
            UnchangedCheck(name="dev", of="file", path="config/dev.json"),
            UnchangedCheck(name="release notes", of="file", path="RELEASE.txt"),
        ),
        setup=Setup(
            files=(
                TextFile(path="RELEASE.txt", text=notes),
                *(
                    TextFile(path=f"config/{stage}.json", text=json.dumps(config, indent=2) + "\n")
                    for stage, config in configs.items()
                ),
            )
        ),
        params={"version": version, "timeout_s": new},
    )
