"""Tasks that need three servers that have nothing to do with each other."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import (
    AnswerNumber,
    FileCheck,
    SqliteCheck,
    ToolCheck,
    UnchangedCheck,
)
from atlas_gym.task.setup import Commit, Database, Repository, Setup, Table, TextFile
from atlas_gym.task.template import Draft, template

from .assistant import BOOKED, records
from .assistant import DB as PA_DB
from .graph import graph
from .ledger import entry, opening
from .mail import sent
from .words import csv, mailbox, people, program

BOOKS, FILES, SQL = "beancount-mcp", "server-filesystem", "mcp-server-sqlite"
GIT, GRAPH, MAIL = "mcp-server-git", "server-memory", "mockworld-email"
PA = "mcp-personal-assistant"


@template(servers=(BOOKS, SQL, FILES), difficulty="hard")
def close_period(rng: random.Random) -> Draft:
    year, month = rng.choice((2023, 2024)), rng.randint(2, 11)
    shops = {
        "Green Basket": "Expenses:Food:Groceries",
        "City Transit": "Expenses:Transport",
        "Nordnet": "Expenses:Utilities",
        "Paper Moon": "Expenses:Books",
        "Casa Lume": "Expenses:Food:Restaurants",
    }
    lines = []
    for number, day in enumerate(sorted(rng.sample(range(1, 28), 11)), start=1):
        lines.append(
            (number, f"{year}-{month:02d}-{day:02d}", rng.choice(sorted(shops)), rng.randint(300, 20000))
        )
    missing = rng.sample(lines, 3)
    text = opening(year)
    for line in lines:
        if line not in missing:
            text += entry(line[1], line[2], "Purchase", shops[line[2]], line[3], "Assets:Bank:Checking")
    gold = """
        import json
        books, db = MCPServer("beancount-mcp"), MCPServer("mcp-server-sqlite")
        fs = MCPServer("server-filesystem")
        rules = fs.read_text_file(path="/workspace/rules.csv")
        rules = rules["content"] if isinstance(rules, dict) else rules
        account = dict(line.split(",") for line in rules.splitlines()[1:])
        found = books.beancount_query(
            query="SELECT date, payee, number WHERE account = 'Assets:Bank:Checking' AND number < 0"
        )
        found = json.loads(found) if isinstance(found, str) else found
        booked = {(day, payee, round(-float(amount), 2)) for day, payee, amount in found["rows"]}
        report, total = [], 0.0
        for row in db.read_query(query="SELECT id, day, payee, amount FROM statement ORDER BY id"):
            if (row["day"], row["payee"], round(row["amount"], 2)) not in booked:
                books.beancount_submit_transaction(transaction=(
                    f'{row["day"]} * "{row["payee"]}" "From bank statement"\\n'
                    f'  {account[row["payee"]]}  {row["amount"]:.2f} EUR\\n  Assets:Bank:Checking\\n'
                ))
                report.append(str(row["id"]))
                total += row["amount"]
        fs.write_file(path="/workspace/added.txt", content="\\n".join(report) + "\\n")
        answer(f"Added {total:.2f} EUR")
    """

    def booked(line: tuple[int, str, str, int]) -> ToolCheck:
        where = f"account = '{shops[line[2]]}' AND payee = '{line[2]}' AND date = {line[1]}"
        return ToolCheck(
            name=f"statement line {line[0]} is booked",
            server=BOOKS,
            tool="beancount_query",
            arguments={"query": f"SELECT sum(number) WHERE {where}"},
            expected={"rows[0][0]": line[3] / 100},
        )

    everything = ToolCheck(
        name="the bank account adds up",
        weight=2,
        server=BOOKS,
        tool="beancount_query",
        arguments={"query": "SELECT sum(number) WHERE account = 'Assets:Bank:Checking'"},
        expected={"rows[0][0]": -sum(line[3] for line in lines) / 100},
    )
    return Draft(
        prompt=rng.choice(
            (
                "Please reconcile the bank statement (table statement of the SQLite database) with my "
                "ledger. Payments that the ledger lacks must be added to it, from Assets:Bank:Checking "
                "to the account that /workspace/rules.csv gives for the payee, with day, payee and "
                "amount of the statement. Write the ids of those statement lines to "
                "/workspace/added.txt, one per line, and tell me their total.",
                "Some card payments never made it into the books. Compare the SQLite table statement "
                "with the ledger, book what is missing (paid from Assets:Bank:Checking, expense account "
                "by payee as in /workspace/rules.csv; keep the date and the payee), list the statement "
                "ids you added in /workspace/added.txt, one per line, and give me the sum you added.",
            )
        ),
        gold=program(gold),
        checks=(
            *(booked(line) for line in missing),
            everything,
            FileCheck(
                name="the list",
                path="added.txt",
                lines=tuple(str(line[0]) for line in missing),
                only_lines=True,
            ),
            AnswerNumber(name="states the sum", value=sum(line[3] for line in missing) / 100, limit=6),
            FileCheck(
                name="earlier entries are untouched", gate=True, path="main.bean", contains=(text.strip(),)
            ),
            UnchangedCheck(name="the statement", of="query", path="data.db", query="SELECT * FROM statement"),
        ),
        setup=Setup(
            files=(
                TextFile(path="main.bean", text=text),
                TextFile(path="rules.csv", text=csv([("payee", "account"), *sorted(shops.items())])),
            ),
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="statement",
                            columns=("id INTEGER PRIMARY KEY", "day TEXT", "payee TEXT", "amount REAL"),
                            rows=tuple((n, day, payee, cents / 100) for n, day, payee, cents in lines),
                        ),
                    ),
                ),
            ),
        ),
        params={"missing": [line[0] for line in missing]},
    )


@template(servers=(GIT, GRAPH, MAIL), difficulty="hard")
def incident_owner(rng: random.Random) -> Draft:
    authors = people(rng, 5)
    boss, *devs = authors
    flag = rng.choice(("fast_path", "new_pricing", "lazy_cache"))
    flags = {"fast_path": "off", "new_pricing": "off", "lazy_cache": "off"}
    commits = [Commit(message="Start", files={"flags.ini": ini(flags)}, author=boss, email="dev@example.org")]
    at = rng.randint(1, 4)
    culprit = ""
    for number in range(6):
        author = devs[rng.randrange(4)]
        if number == at:
            flags[flag], culprit = "on", author
        else:
            commits.append(
                Commit(
                    message=f"Note {number}",
                    files={"notes.txt": f"{number}\n"},
                    author=author,
                    email="dev@example.org",
                )
            )
            continue
        commits.append(
            Commit(
                message="Adjust flags",
                files={"flags.ini": ini(flags)},
                author=author,
                email="dev@example.org",
            )
        )
    lead = {dev: rng.choice([d for d in authors if d != dev]) for dev in devs}
    entities = [(name, "person", [f"email: {mailbox(name, 'staff.example')}"]) for name in authors]
    relations = [(dev, "led_by", who) for dev, who in lead.items()]
    ticket = f"INC-{rng.randint(1000, 9999)}"
    gold = """
        git, memory = MCPServer("mcp-server-git"), MCPServer("server-memory")
        mail = MCPServer("mockworld-email")
        log = git.git_log(repo_path="/workspace/shop", max_count=50)
        for block in log.split("Commit: ")[1:]:
            if $line in git.git_show(repo_path="/workspace/shop", revision=block.split()[0]):
                author = block.split("Author: ")[1].splitlines()[0]
                break
        graph = memory.read_graph()
        led_by = {r["from"]: r["to"] for r in graph["relations"] if r["relationType"] == "led_by"}
        lead = led_by[author]
        seen = {e["name"]: e["observations"][0].removeprefix("email: ") for e in graph["entities"]}
        for name in (author, lead):
            mail.send_email(to=seen[name], subject=$subject, body="Please have a look at this incident.")
        answer(f"Wrote to {author} and {lead}.")
    """
    subject = f"{ticket}: {flag}"
    reached = [f"data[to={mailbox(who, 'staff.example')}]" for who in (culprit, lead[culprit])]
    return Draft(
        prompt=rng.choice(
            (
                f"Incident {ticket}: the flag {flag} in /workspace/shop/flags.ini should never have been "
                "switched on. Find out from the Git history who did it. Then mail that person and the "
                "person's lead (relation led_by in the knowledge graph, where their addresses are too); "
                f'two separate mails, subject "{subject}".',
                f"Someone turned {flag} on in /workspace/shop (flags.ini). Look up the author of that "
                "commit in Git, the address and the lead (led_by) in the knowledge graph, and send each "
                f'of the two a mail with the subject "{subject}".',
            )
        ),
        gold=program(gold, line=f"+{flag} = on", subject=subject),
        checks=(
            sent("mail to the author", subject, {reached[0]: 1}, {}),
            sent("mail to the lead", subject, {reached[1]: 1}, {}),
            sent("nobody else", subject, {"data": 2, **dict.fromkeys(reached, 1)}, {}),
            UnchangedCheck(name="the repository", of="branch", path="shop", branch="main"),
            UnchangedCheck(name="the graph", of="graph", path="memory.jsonl"),
        ),
        setup=Setup(
            files=(graph(entities, relations),),
            repositories=(Repository(path="shop", commits=tuple(commits)),),
        ),
        params={"author": culprit, "lead": lead[culprit]},
    )


def ini(flags: dict[str, str]) -> str:
    """A file of feature flags."""
    return "[flags]\n" + "".join(f"{name} = {state}\n" for name, state in flags.items())


@template(servers=(GRAPH, PA, MAIL), difficulty="hard", split="test")
def invite_team(rng: random.Random) -> Draft:
    staff = people(rng, 8)
    projects = rng.sample(("Aurora", "Basalt", "Cobalt"), 3)
    team = rng.sample(staff, 3)
    entities = [(n, "person", [f"email: {mailbox(n, 'staff.example')}", "office: east"]) for n in staff]
    entities += [(p, "project", ["status: active"]) for p in projects]
    relations = [(n, "works_on", projects[0]) for n in team]
    relations += [(n, "works_on", rng.choice(projects[1:])) for n in staff if n not in team]
    rng.shuffle(relations)
    day = f"2025-{rng.randint(10, 12)}-{rng.randint(10, 27)}"
    hour = rng.randint(9, 16)
    title = f"{projects[0]} review"
    subject = f"Invitation: {title} {rng.randint(100, 999)}"
    gold = """
        memory, assistant, mail = (
            MCPServer("server-memory"), MCPServer("mcp-personal-assistant"), MCPServer("mockworld-email")
        )
        graph = memory.read_graph()
        works = [r for r in graph["relations"] if r["relationType"] == "works_on"]
        team = {r["from"] for r in works if r["to"] == $project}
        seen = [o for e in graph["entities"] if e["name"] in team for o in e["observations"]]
        addresses = sorted(o.removeprefix("email: ") for o in seen if o.startswith("email: "))
        assistant.create_calendar_event(title=$title, start_time=$start, end_time=$end, attendees=addresses)
        for address in addresses:
            mail.send_email(to=address, subject=$subject, body="You are invited.")
        answer(f"Invited {len(addresses)} people.")
    """
    addresses = sorted(mailbox(n, "staff.example") for n in team)
    return Draft(
        prompt=rng.choice(
            (
                f"Please set up '{title}' on {day} from {hour:02d}:00 to {hour + 1:02d}:00 in my "
                f"calendar, with everyone who works on {projects[0]} (see the knowledge graph, their mail "
                "addresses are there) as attendees by address, and send each of them a mail with the "
                f'subject "{subject}".',
                f"Everyone on project {projects[0]} (works_on in the knowledge graph) should come to "
                f"'{title}', {day}, {hour}:00 to {hour + 1}:00. Put it into my calendar with their mail "
                f'addresses as attendees, and mail each of them; subject: "{subject}".',
            )
        ),
        gold=program(
            gold,
            project=projects[0],
            title=title,
            start=f"{day}T{hour:02d}:00:00",
            end=f"{day}T{hour + 1:02d}:00:00",
            subject=subject,
        ),
        checks=(
            SqliteCheck(
                name="the event",
                weight=0.5,
                path=PA_DB,
                server=PA,
                query=f"SELECT title, begins, ends FROM ({BOOKED})",
                rows=((title, f"{day} {hour:02d}:00", f"{day} {hour + 1:02d}:00"),),
            ),
            SqliteCheck(
                name="the attendees",
                weight=1.5,
                path=PA_DB,
                server=PA,
                query="SELECT value FROM calendar_events, json_each(data, '$.attendees')",
                rows=tuple((a,) for a in addresses),
            ),
            *(sent(f"mail to {a}", subject, {f"data[to={a}]": 1}, {}, 0.5) for a in addresses),
            sent("nobody else", subject, {"data": 3, **{f"data[to={a}]": 1 for a in addresses}}, {}, 0.5),
        ),
        setup=Setup(
            files=(graph(entities, relations),),
            databases=(Database(path=PA_DB, server=PA, tables=(records("calendar_events", []),)),),
        ),
        params={"team": team},
    )
