"""Tasks on a mailbox. Its messages are the server's own and always start the same."""

from __future__ import annotations

import random
from typing import NamedTuple

from atlas_gym.task.kinds import CalledCheck, CheckBase, ToolCheck
from atlas_gym.task.template import Draft, template

from .words import mailbox, people, program

MAIL = "mockworld-email"


class Letter(NamedTuple):
    """One message of the seeded inbox, with words that its subject holds."""

    sender: str
    thread: str
    words: tuple[str, ...]


INBOX = (
    Letter("hedy.lamarr@mock.local", "thread_f8YA1kMwTFK", ("export", "manifest", "payload")),
    Letter("leslie.ritchie@test.dev", "thread_ckcYWRl3jeC", ("manifest", "payload")),
    Letter("hedy.torvalds@mock.local", "thread_4e6hMrDsHlT", ("export", "ledger")),
    Letter("margaret.johnson@mock.local", "thread_8znpoM5Pz35", ("report",)),
    Letter("vint.johnson@test.dev", "thread_8ivZs2x1STU", ("report", "payload")),
    Letter("radia.shannon@test.dev", "thread_9LSHy8g2sP5", ("manifest", "payload")),
    Letter("shafi.shannon@test.dev", "thread_amwPtl8LAZu", ("export", "ledger", "payload")),
    Letter("edsger.ritchie@test.dev", "thread_8ivZs2x1STU", ("ledger", "manifest")),
)
DEAD = ("bounce@blackhole.test", "no-such-user@example.com", "rejected@sandbox.io")


def sent(
    name: str, phrase: str, lengths: dict[str, int], expected: dict[str, str], weight: float = 1
) -> ToolCheck:
    """What a search for a phrase in the mailbox must find."""
    return ToolCheck(
        name=name,
        weight=weight,
        server=MAIL,
        tool="search",
        arguments={"query": phrase},
        lengths=lengths,
        expected=dict(expected),
    )


@template(servers=(MAIL,), difficulty="medium")
def answer_inbox(rng: random.Random) -> Draft:
    word = rng.choice(("ledger", "manifest", "export"))
    letters = [letter for letter in INBOX if word in letter.words]
    ticket = f"case {rng.randint(1000, 9999)}"
    body = f"Thank you, we are looking into it under {ticket}."
    gold = """
        mail = MCPServer("mockworld-email")
        count = 0
        for message in mail.list_messages(folder="inbox")["data"]:
            if $word in message["subject"].lower():
                mail.send_email(
                    to=message["from"],
                    subject="Re: " + message["subject"],
                    body=$body,
                    thread_id=message["thread_id"],
                )
                count += 1
        answer(f"Answered {count} messages.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Please answer every message in my inbox that has the word '{word}' in its subject. "
                'Reply in the same thread, to the sender, subject "Re: " plus the old subject, with '
                f'this text: "{body}"',
                f"All inbox messages whose subject mentions '{word}' need the same reply, each in its own "
                f'thread and to whoever wrote it: "{body}" Use "Re: " and the original subject as the '
                "subject line.",
            )
        ),
        gold=program(gold, word=word, body=body),
        checks=(
            *(
                sent(
                    f"reply to {letter.sender}",
                    ticket,
                    {f"data[to={letter.sender}]": 1},
                    {f"data[to={letter.sender}][0].thread_id": letter.thread},
                )
                for letter in letters
            ),
            sent("no other mail", ticket, {"data": len(letters)}, {}, 0.5),
        ),
        params={"word": word, "replies": len(letters)},
    )


@template(servers=(MAIL,), difficulty="easy")
def mail_with_backup(rng: random.Random) -> Draft:
    first, backup = (mailbox(name) for name in people(rng, 2))
    bounces = rng.random() < 0.5  # else who never tries the first address would be right every time
    first = rng.choice(DEAD) if bounces else first
    number = rng.randint(10000, 99999)
    subject = f"Invoice {number} is due"
    gold = """
        mail = MCPServer("mockworld-email")
        body = "Dear customer, please settle the invoice by the end of the month."
        try:
            mail.send_email(to=$first, subject=$subject, body=body)
            answer("Sent to the first address.")
        except ToolError:
            mail.send_email(to=$backup, subject=$subject, body=body)
            answer("It bounced, so it went to the second address.")
    """
    checks: list[CheckBase] = [
        sent(
            "sent once, to the right address",
            subject,
            {"data": 1},
            {"data[0].to": backup if bounces else first},
        )
    ]
    if bounces:
        checks += [
            CalledCheck(
                name=f"tried the first address{'' if times is None else ' once'}",
                gate=times is None,
                weight=0.25,
                server=MAIL,
                tools=("send_email",),
                arguments={"to": first},
                outcomes=("tool_error",),
                times=times,
            )
            for times in (None, 1)
        ]
    return Draft(
        prompt=rng.choice(
            (
                f'Send a short reminder with the subject "{subject}" to {first}. If that address refuses '
                f"it, send it to {backup} instead, and do not try the first address again.",
                f'Please mail {first} a friendly reminder, subject "{subject}". In case the mail '
                f"bounces, use {backup}.",
            )
        ),
        gold=program(gold, first=first, backup=backup, subject=subject),
        checks=checks,
        params={"first": first, "bounces": bounces},
    )
